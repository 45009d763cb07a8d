"""Objects that a careless or hostile producer could pass to cgtree, decoded from bytes."""

import ctypes
import weakref

from support import DELETER, Unversioned, Versioned, new_capsule

INTEGERS = (0, 1, 2, 3, 4, 7, 8, 12, 16, -1, -2, -4, 64, 255, 256, 1000, (1 << 31) - 1, 1 << 31,
            -(1 << 31), 1 << 32, (1 << 32) + 2, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63),
            -(1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 4, 1 << 64, 1 << 70, -(1 << 70))
TEXTS = ("", "<f4", "|b1", "<i8", "<V2", ">f4", "<f", "<f0", "<f99999999999", "|O8", "float32",
         "host", "host:1", "host:99999999999999999999", "wait", "ignore", "\ud800", "a\0b", "é" * 40,
         "<f4" * 1000, "=u2", "<c8", "<M8[ns]")


class Raised(Exception):
    """An exception that hostile objects raise."""


class Source:
    """Decides by bytes; zeros after the last one, so that every input ends."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def below(self, count):
        return (self.byte() << 8 | self.byte()) % count if count > 256 else self.byte() % count

    def choose(self, choices):
        return choices[self.below(len(choices))]

    def chance(self, of_256):
        return self.byte() < of_256


class Hostile:
    """An object whose special methods answer, raise or change the container through which they were reached."""

    def __init__(self, world, source, depth):
        self.world, self.deeds = world, {}
        for name in ("index", "len", "getitem", "iter", "bool", "float", "name", "str"):
            self.deeds[name] = (source.below(5), value(world, source, depth + 1))
        world.note(self)

    def act(self, name, kind):
        deed, answer = self.deeds[name]
        self.world.reads += 1
        if deed == 1:
            raise self.world.own(Raised(name))
        if deed == 2:
            raise self.world.own(KeyError(name))
        if deed == 3:
            self.world.wreck()
        if deed == 4 or not isinstance(answer, kind):
            answer = kind()
        return answer

    def __index__(self):
        return self.act("index", int)

    def __len__(self):
        return abs(self.act("len", int)) % 100

    def __getitem__(self, key):
        return self.act("getitem", object)

    def __iter__(self):
        return iter(self.act("iter", tuple))

    def __bool__(self):
        return self.act("bool", bool)

    def __float__(self):
        return self.act("float", float)

    def __str__(self):
        return self.act("str", str)

    __hash__ = object.__hash__

    @property
    def __name__(self):
        return self.act("name", str)


class OddInt(int):
    def __index__(self):
        return int(self) + 1


class OddStr(str):
    def __str__(self):
        raise Raised("str")


class OddList(list):
    def __iter__(self):
        while True:
            yield 1


class OddTuple(tuple):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, key):
        raise Raised("getitem")


class OddDict(dict):
    def __getitem__(self, key):
        raise Raised("getitem")


class OddKey(str):
    """Equal to any key, and changes the dict during the lookup."""

    world = None

    def __hash__(self):
        return hash(str(self))

    def __eq__(self, other):
        self.world.wreck()
        return str.__eq__(self, other)


class World:
    """The objects of one case, which must be freed after it, and the containers that it may empty."""

    def __init__(self):
        self.seen, self.raised, self.containers = [], [], []
        self.reads = 0

    def note(self, thing):
        self.seen.append(weakref.ref(thing))
        return thing

    def own(self, error):
        self.raised.append(error)
        return error

    def wreck(self):
        """Empties the containers, which cgtree may be reading."""
        for container in self.containers:
            container.clear()

    def end(self):
        self.wreck()
        self.containers.clear()
        self.raised.clear()


def items(world, source, depth):
    return [value(world, source, depth + 1) for _ in range(source.below(10))]


def nested(world, source):
    """Lists in lists: deep, wide, or recursive."""
    kind = source.below(3)
    inner = []
    world.containers.append(inner)
    if kind == 0:
        for _ in range(source.below(256) * 8):
            inner = [inner]
    elif kind == 1:
        inner.extend([inner] * source.below(200))
    else:
        for _ in range(12):
            inner = [inner] * 60
    return inner


def value(world, source, depth=0):
    kind = source.below(24) if depth < 3 else source.below(8)
    if kind < 4:
        return source.choose(INTEGERS)
    if kind == 4:
        return source.choose((None, True, False, 1.5, float("nan"), float("inf"), b"<f4", 3j))
    if kind < 7:
        return source.choose(TEXTS)
    if kind == 7:
        return (OddInt(source.byte()), OddStr("<f4"), range(source.byte()))[source.below(3)]
    if kind < 11:
        return tuple(items(world, source, depth))
    if kind < 14:
        made = items(world, source, depth)
        world.containers.append(made)
        return made
    if kind == 14:
        return nested(world, source)
    if kind == 15:
        return (OddList, OddTuple)[source.below(2)](items(world, source, depth))
    if kind == 16:
        return {source.choose(TEXTS): value(world, source, depth + 1)}
    if kind == 17:
        return iter(items(world, source, depth))
    if kind == 18:
        return memoryview(bytes(source.byte()))
    return Hostile(world, source, depth)


KEYS = ("shape", "typestr", "data", "version", "strides", "stream", "descr", "mask")


def interface(world, source, valid):
    """A protocol's dict: `valid`, with some entries changed."""
    entries = dict(valid)
    for _ in range(source.below(4)):
        key = source.choose(KEYS)
        deed = source.below(8)
        if deed == 0:
            entries.pop(key, None)
        elif deed == 1 and type(entries.get(key)) is tuple:
            changed = list(entries[key])
            changed.insert(source.below(len(changed) + 1), value(world, source))
            entries[key] = tuple(changed)
        elif deed == 2 and type(entries.get(key)) is tuple and entries[key]:
            changed = list(entries[key])
            changed[source.below(len(changed))] = value(world, source)
            entries[key] = tuple(changed)
            if source.chance(128):
                entries[key] = changed
                world.containers.append(changed)
        elif deed == 3:
            entries = {OddKey(name): entry for name, entry in entries.items()}
        else:
            entries[key] = value(world, source)
    kind = source.below(16)
    if kind == 0:
        return value(world, source)
    made = OddDict(entries) if kind == 1 else entries
    world.containers.append(made)
    return made


deletions = {}


def _delete(address):
    if address not in deletions:
        deletions[address] = 1 << 20  # not a struct of this module
    deletions[address] += 1
    if deletions[address] & 1 and address & 16:
        raise Raised("deleter")


_delete_callback = DELETER(_delete)
DELETE = ctypes.cast(_delete_callback, ctypes.c_void_p)
NAMES = (b"dltensor_versioned", b"dltensor", b"used_dltensor_versioned", b"used_dltensor", b"",
         b"dltensor_versionedx", b"dlpack_exchange_api")


class Managed:
    """DLPack's struct around `array`, with some fields changed; its arrays have no bytes after their end."""

    def __init__(self, source, array):
        self.array, self.is_versioned = array, source.chance(160)
        self.struct = Versioned() if self.is_versioned else Unversioned()
        rank, item = array.ndim, array.itemsize
        self.shape = (ctypes.c_int64 * rank)(*array.shape)
        self.strides = (ctypes.c_int64 * rank)(*[step // item for step in array.strides])
        if self.is_versioned:
            self.struct.major, self.struct.minor = 1, source.below(4)
        self.struct.deleter = DELETE
        view = self.struct.tensor
        view.data, view.device_type, view.ndim = array.ctypes.data, 1, rank
        view.code, view.bits, view.lanes = 2, item * 8, 1
        view.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        view.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))
        for _ in range(source.below(4)):
            self.change(source, view)
        self.address = ctypes.addressof(self.struct)
        deletions[self.address] = 0
        self.has_deleter = bool(self.struct.deleter)

    def change(self, source, view):
        kind = source.below(14)
        number = source.choose(INTEGERS)
        if kind < 5:
            field = ("device_type", "code", "bits", "lanes", "byte_offset")[kind]
            setattr(view, field, number)
        elif kind == 5:  # at most as many as exist, or too many to be read
            is_small = source.chance(128)
            view.ndim = source.below(len(self.shape) + 1) if is_small else source.choose(
                (9, 64, 1 << 20, (1 << 31) - 1, -1, -(1 << 31)))
        elif kind == 6:
            view.data = number & ((1 << 64) - 1)
        elif kind == 7:
            view.shape = None
        elif kind == 8:
            view.strides = None
        elif kind == 9 and len(self.shape):
            self.shape[source.below(len(self.shape))] = number
        elif kind == 10 and len(self.strides):
            self.strides[source.below(len(self.strides))] = number
        elif kind == 11:
            self.struct.deleter = None
        elif self.is_versioned:
            setattr(self.struct, source.choose(("major", "minor", "flags")), number)
        view.device_id = number if kind == 12 else 0

    def capsule(self, source):
        usual = NAMES[0] if self.is_versioned else NAMES[1]
        # The other struct's name would not be detectable as wrong.
        name = usual if source.chance(230) else source.choose(NAMES[2:])
        self.name = name.decode()
        return new_capsule(self.address, name, None)

