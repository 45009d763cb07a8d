"""Types of the package; what each does is in the docstrings and in docs/python.md."""

from cgtree._context import Axis as Axis
from cgtree._context import Context as Context
from cgtree._context import compile as compile
from cgtree._context import default_context as default_context
from cgtree._context import mark_step as mark_step
from cgtree._context import metrics_text as metrics_text
from cgtree._context import report as report
from cgtree._context import stats as stats
from cgtree._context import synchronize as synchronize
from cgtree._errors import BoundaryError as BoundaryError
from cgtree._errors import CaptureError as CaptureError
from cgtree._errors import ConcurrentUse as ConcurrentUse
from cgtree._errors import DeviceError as DeviceError
from cgtree._errors import Error as Error
from cgtree._errors import GroupError as GroupError
from cgtree._errors import InvalidArgument as InvalidArgument
from cgtree._errors import MissingField as MissingField
from cgtree._errors import NotSupported as NotSupported
from cgtree._errors import OutOfMemory as OutOfMemory
from cgtree._errors import StaleTensor as StaleTensor
from cgtree._errors import VerifyError as VerifyError
from cgtree._errors import WrongType as WrongType
from cgtree._errors import WrongValue as WrongValue
from cgtree._cgtree import CompiledFunction as CompiledFunction
from cgtree._cgtree import Generator as Generator
from cgtree._cgtree import Stream as Stream
from cgtree._cgtree import Tensor as Tensor
from cgtree._cgtree import as_tensor as as_tensor
from cgtree._cgtree import axis_length as axis_length
from cgtree._cgtree import best_device as best_device
from cgtree._cgtree import current_key as current_key
from cgtree._cgtree import current_stream as current_stream
from cgtree._cgtree import empty as empty
from cgtree._cgtree import from_array_interface as from_array_interface
from cgtree._cgtree import from_cuda_array_interface as from_cuda_array_interface
from cgtree._cgtree import from_dlpack as from_dlpack
from cgtree._cgtree import is_in_step as is_in_step
from cgtree._cgtree import launch as launch
from cgtree._cgtree import scalar as scalar
from cgtree._cgtree import set_log_level as set_log_level
from cgtree._cgtree import suggest_buckets as suggest_buckets
from cgtree._cgtree import view as view

__version__: str
