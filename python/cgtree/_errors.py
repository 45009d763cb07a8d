"""The exceptions of cgtree: one class per kind of failure, as in base/error.h."""


class Error(RuntimeError):
    """The root of all exceptions that cgtree raises itself."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class InvalidArgument(Error, ValueError):
    """An argument that the caller can correct: a shape, type, device, stride, a closed handle."""


class OutOfMemory(Error, MemoryError):
    """The device has no room, or a budget forbids taking more. Nothing was allocated.

    `report` (a dict, or None) tells how many bytes each pool holds.
    """

    report = None


class StaleTensor(Error):
    """A tensor was used after `mark_step()` had released its memory."""


class ConcurrentUse(Error):
    """A second thread called into a context that is busy."""


class GroupError(Error):
    """The ranks of a group do different things, or a rank cannot be reached."""


class VerifyError(Error):
    """A replay was verified and differs from an eager run.

    Arrays that the call writes, and generators, are as the replay left them. `divergence` is a
    dict: "of" ("output", "input", "draws" or "step"), "index", "what", "position" of the first
    element that differs, "replayed" and "eager" (its values as texts), the numbers of elements and
    of those that differ, and the suspected causes.
    """

    divergence = None


class DeviceError(Error):
    """The device returned an error; `code` is the CUDA runtime's number, on every device."""

    code = 0


class CaptureError(DeviceError):
    """A step function could not be captured. Everything is as before the call."""


class BoundaryError(InvalidArgument):
    """A tensor of another library cannot be imported, or one of cgtree cannot be exported."""


class MissingField(BoundaryError, KeyError):
    """A mandatory field of a protocol is missing."""

    __str__ = Error.__str__


class WrongType(BoundaryError, TypeError):
    """A field of a protocol has another type than the protocol says."""


class WrongValue(BoundaryError):
    """A field of a protocol has a value that the protocol forbids, or that contradicts another."""


class NotSupported(BoundaryError, BufferError, NotImplementedError):
    """A value that the protocol allows and cgtree does not support."""
