// What the page can do beyond being read: fold branches, expand, filter, follow links.
"use strict";
const rows = [...document.querySelectorAll(".node")];
const folded = new Set();

// A folded row hides its subtree, which is the rows that come next.
function showRows() {
  let hiddenUntil = 0;
  rows.forEach((row, i) => {
    row.hidden = i < hiddenUntil;
    if (folded.has(row)) hiddenUntil = Math.max(hiddenUntil, i + 1 + Number(row.dataset.subtree));
  });
}

function fold(row, shut) {
  if (shut) folded.add(row);
  else folded.delete(row);
  row.classList.toggle("folded", shut);
  row.querySelector(".dot").setAttribute("aria-expanded", String(!shut));
  showRows();
}

// The dot of a row with something below folds it.
for (const row of rows) {
  if (row.dataset.subtree === "0") continue;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "dot";
  button.title = `Fold what follows (${row.dataset.subtree})`;
  button.setAttribute("aria-label", button.title);
  button.setAttribute("aria-expanded", "true");
  button.addEventListener("click", () => fold(row, !folded.has(row)));
  row.querySelector(".dot").replaceWith(button);
}

// The row that the address names is unfolded and opened.
function reveal() {
  const row = /^#node-\d+$/.test(location.hash) && document.querySelector(location.hash);
  if (!row) return;
  rows.forEach((above, i) => {
    const below = rows.indexOf(row) - i;
    if (below > 0 && below <= Number(above.dataset.subtree) && folded.has(above)) fold(above, false);
  });
  row.querySelector("details").open = true;
  row.scrollIntoView({block: "nearest"});
}
addEventListener("hashchange", reveal);
reveal();

for (const button of document.querySelectorAll("[data-open]")) {
  button.addEventListener("click", () => {
    for (const row of rows) {
      row.querySelector("details").open = button.dataset.open === "all";
      if (folded.has(row)) fold(row, false);
    }
  });
}

// Rows that do not match are dimmed and not hidden: where the others stand in the tree still shows.
document.querySelector("[type=search]").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of rows) {
    const name = row.querySelector("b").textContent.toLowerCase();
    const matches = wanted.startsWith("#") ? row.id === `node-${wanted.slice(1)}`
                                           : name.includes(wanted);
    row.classList.toggle("dim", wanted !== "" && !matches);
  }
});
document.querySelector(".tools").hidden = rows.length === 0;
