// The maps of the pools: zoom, and what belongs together: slots and the recordings that write them.
const footprints = JSON.parse(document.getElementById("footprints")?.textContent ?? "{}");

// Returns whether a recording writes a byte of [begin, end). Its ranges ascend and are disjoint.
function writes(node, begin, end) {
  const ranges = footprints[node];
  let low = 0, high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle][1] <= begin) low = middle + 1;
    else high = middle;
  }
  return low < ranges.length && ranges[low][0] < end;
}

for (const region of document.querySelectorAll(".region")) {
  const strips = region.querySelector(".strips");
  const pieces = [...region.querySelectorAll("[role=option]")];
  const chips = [...region.querySelectorAll(".chips a")];
  const about = region.querySelector(".about");
  let zoom = 1;

  const clear = () => {
    region.classList.remove("points");
    for (const item of [...pieces, ...chips]) item.classList.remove("on");
  };
  const showPiece = (piece) => {
    clear();
    region.classList.add("points");
    piece.classList.add("on");
    const [begin, end] = [Number(piece.dataset.b), Number(piece.dataset.e)];
    for (const chip of chips) chip.classList.toggle("on", writes(chip.dataset.node, begin, end));
    about.textContent = piece.getAttribute("aria-label");
    about.hidden = false;
  };
  const showNode = (chip) => {
    clear();
    region.classList.add("points");
    chip.classList.add("on");
    let slots = 0, held = 0;
    for (const piece of pieces) {
      const on = writes(chip.dataset.node, Number(piece.dataset.b), Number(piece.dataset.e));
      piece.classList.toggle("on", on);
      slots += on && piece.classList.contains("slot");
      held += on && piece.classList.contains("held");
    }
    about.textContent = `${chip.textContent} writes ${slots} slot${slots === 1 ? "" : "s"}, ${held} of them held`;
    about.hidden = false;
  };

  for (const [name, show] of [["[role=option]", showPiece], [".chips a", showNode]]) {
    for (const event of ["mouseover", "focusin"]) {
      region.addEventListener(event, ({target}) => target.matches(name) && show(target));
    }
  }
  region.addEventListener("mouseout", clear);
  region.addEventListener("focusout", clear);

  // One piece of a segment is in the tab order; arrow keys, Home and End go on from there. Listeners
  // are the region's: an SVG element that listens for the focus can itself have it in Chromium.
  const options = (list) => [...list.querySelectorAll("[role=option]")];
  for (const list of region.querySelectorAll("[role=listbox]")) options(list)[0].setAttribute("tabindex", "0");
  region.addEventListener("focusin", ({target}) => {
    if (!target.matches("[role=option]")) return;
    for (const option of options(target.parentElement)) {
      option.setAttribute("tabindex", option === target ? "0" : "-1");
      option.setAttribute("aria-selected", String(option === target));
    }
  });
  region.addEventListener("keydown", (event) => {
    if (!event.target.matches("[role=option]")) return;
    const list = options(event.target.parentElement);
    const at = list.indexOf(event.target);
    const to = {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
                Home: 0, End: list.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    list[Math.max(0, Math.min(to, list.length - 1))].focus();
  });

  // The middle of what is seen stays where it is.
  const setZoom = (wanted) => {
    const middle = (strips.scrollLeft + strips.clientWidth / 2) / zoom;
    zoom = Math.max(1, Math.min(wanted, 2 ** 14));
    strips.style.setProperty("--zoom", zoom);
    strips.scrollLeft = middle * zoom - strips.clientWidth / 2;
  };
  const used = Math.max(...[...strips.children].map(strip => Number(strip.dataset.used)));
  for (const button of region.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      const by = button.dataset.zoom;
      if (by === "fit") {
        setZoom(used > 0 ? 0.98 / used : 1);
        strips.scrollLeft = 0;
      } else {
        setZoom(by === "1" ? 1 : zoom * Number(by));
      }
    });
  }
  region.querySelector(".tools").hidden = false;
}
