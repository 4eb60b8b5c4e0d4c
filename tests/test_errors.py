"""The words of errors and warnings, once: other tests check their classes and their fields."""

from pathlib import Path

import pytest

from whatwhere.data.arrays import AmbiguousChannels
from whatwhere.data.images import CountsDiffer, FewBits
from whatwhere.data.mixed import TooSmall
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.devices import TooFewDevices, UnknownDevice
from whatwhere.errors import (
    BeyondRange,
    ChangedFile,
    ConvergenceWarning,
    DamagedFilters,
    EmptySet,
    InvalidImages,
    InvalidSetting,
    MissingColumn,
    MissingExtra,
    NoFastEngine,
    NoSuchImages,
    NoSuchRun,
    NotFinite,
    SpecErrorAt,
    UnknownEngine,
    UnknownFormat,
    UnknownModel,
    UnknownSetting,
    Unreadable,
    UnusableRunFile,
    WrongShape,
)
from whatwhere.files import DiskError
from whatwhere.inference.auto_lam import NoLam
from whatwhere.inference.checks import ProbablyBytes
from whatwhere.inference.target import NothingKnown
from whatwhere.learning.run_folder import NotARun, RunExists
from whatwhere.model.deconvnet import NegativeImages
from whatwhere.spec.execution import ArrayWithGaps, StartedSeveralTimes
from whatwhere.spec.toml import GivenTwice, MissingSetting

MESSAGES: dict[Exception, str] = {
    InvalidSetting({"steps": -1}, "an integer of at least 0"): (
        "Got steps = -1; expected an integer of at least 0."
    ),
    InvalidSetting({"maps": 5, "pool_maps": 2}, "a multiple", "Give 4."): (
        "Got maps = 5 with pool_maps = 2; expected a multiple. Give 4."
    ),
    InvalidSetting("a mask with a stream", "NaN"): "Got a mask with a stream; expected NaN.",
    InvalidSetting({"maps": 10**5000}, "less"): ("Got maps = a very large integer; expected less."),
    SpecErrorAt("inference", InvalidSetting({"lam": -1.0}, "a number above 0")): (
        "In inference: got lam = -1.0; expected a number above 0."
    ),
    GivenTwice("seed"): "seed is given twice. Give it once.",
    GivenTwice("inference", "inference.steps"): (
        "inference is given twice, also by inference.steps. Give one of them."
    ),
    MissingSetting("model.layers.3.maps"): (
        "model.layers.3.maps is missing and has no default. Give a value."
    ),
    UnknownSetting("sede", "", ["seed"], ["seed"]): ("sede is not a setting. Did you mean 'seed'?"),
    UnknownEngine("engine", "warp", ["auto", "cpu"]): (
        "Unknown engine 'warp'. Expected one of auto, cpu."
    ),
    UnknownModel("model", "minst", ["fashion", "mnist"]): (
        "Unknown model 'minst'. Expected one of fashion, mnist. Did you mean 'mnist'?"
    ),
    UnsupportedProblem("cpu", "float16"): (
        "Engine 'cpu' does not support this: float16. Set engine='auto' to use one that does."
    ),
    UnknownDevice("gpu", "expected auto, cpu or cuda"): (
        "Cannot use device 'gpu': expected auto, cpu or cuda."
    ),
    TooFewDevices(4, 4): (
        "Process 4 of this machine has no GPU: the machine has 4. Start one process per GPU"
        " (torchrun --nproc-per-node gpu), or give --device cpu."
    ),
    ArrayWithGaps(2, 2, 7): (
        "This Slurm array has gaps: it has 2 tasks with numbers from 2 to 7, so that the number of"
        " a task does not show its part. Give --shard I/N, such as --shard"
        ' "$SLURM_ARRAY_TASK_ID/100".'
    ),
    StartedSeveralTimes(): (
        "srun started this command several times, and each process would process all pictures."
        " Give each a part: srun bash -c 'whatwhere … --shard $((SLURM_PROCID +"
        " 1))/$SLURM_NTASKS'. To process all pictures in this process, give --shard 1/1."
    ),
    WrongShape("a mask", (1, 75), "[1, 75, 80]", "for a picture of shape [1, 75, 80]"): (
        "Got a mask of shape [1, 75] for a picture of shape [1, 75, 80]; expected [1, 75, 80]."
    ),
    InvalidImages("list", "a float tensor", "Convert it."): (
        "Got list; expected a float tensor. Convert it."
    ),
    NotFinite("the images", "Replace these values first."): (
        "The images have NaN or infinite values; expected finite ones. Replace these values first."
    ),
    NegativeImages(-0.5): (
        "Images have values down to -0.5, but the model is non-negative; expected values ≥ 0. Shift"
        " them, or make the model with nonnegative=False or input.kind='onoff'."
    ),
    BeyondRange("The objective exceeds it", {"lam =": 1e38}, "Choose a smaller lam."): (
        "The objective exceeds it: lam = 1e+38. Choose a smaller lam."
    ),
    NoLam("there is no noise"): (
        "AutoLam cannot choose lam: there is no noise. Give lam as a number."
    ),
    EmptySet(): "Got an empty set of images; expected at least one.",
    NothingKnown(3): "Image 3 has no known pixel: its mask is 0 everywhere. Leave it out.",
    CountsDiffer("a.npz", 2, 1): ("a.npz has 2 images and 1 label; expected one label per image."),
    MissingColumn("picture", ["text"]): (
        "The table has no column 'picture'; it has the columns text. Name the column of the"
        " pictures: column=…"
    ),
    DamagedFilters(2): (
        "The filters of layer 2 of the model have NaN or infinite values. Train the model again."
    ),
    NoSuchRun("the model", Path("a.safetensors"), "there is no such file"): (
        "Cannot find the model a.safetensors: there is no such file."
    ),
    NoSuchImages("", "none.png", remedy="Check the path."): (
        "Cannot find none.png. Check the path."
    ),
    Unreadable("a.npy", "Permission denied"): "Cannot read a.npy: Permission denied.",
    ChangedFile("a.npy"): "a.npy changed after you loaded it. Load it again.",
    NotARun("a.png", "a picture"): (
        "a.png is a picture, not a run or a model. Give the pictures first, then the model."
    ),
    RunExists("run", True, "Choose another folder."): (
        "run already has a finished run. Choose another folder."
    ),
    UnusableRunFile("a.json", "record", "it is empty", "remove it"): (
        "a.json is not a usable record: it is empty. Remove it."
    ),
    UnknownFormat("model 9", "model 3"): (
        "its format is 'model 9'; expected 'model 3'. Another version of whatwhere may have"
        " written it"
    ),
    DiskError("saving", OSError(28, "No space left on device", "a.npz"), "make room"): (
        "Saving failed: No space left on device (a.npz). Make room."
    ),
    MissingExtra("tifffile", "reading TIFF"): (
        "Reading TIFF needs tifffile, which is not installed. Install it: pip install tifffile"
    ),
    NoFastEngine({"cpu": "float16"}): (
        "Engine 'auto' chose 'reference', which is 10 to 20 times slower than the others, because"
        " they do not support this problem: cpu: float16. Set engine='reference' to silence this"
        " warning."
    ),
    ConvergenceWarning("gap", 1e-5, 2, 3, 30, 0.01): (
        "2 of 3 images did not reach gap = 1e-05 in 30 steps: the duality gap is still up to 0.01"
        " of the cost. Give more steps or a larger gap. In float32, gaps below about 1e-6 are"
        " rounding."
    ),
    ProbablyBytes(254.5, 1.0): (
        "Images have values up to 254.5, but the model's white is 1. whatwhere takes floats as they"
        " are. Scale the images to [0, 1], or train with model.input.white = 254.5."
    ),
    AmbiguousChannels("array", (5, 3, 7, 3)): (
        "array has the shape (5, 3, 7, 3); reading axis 1 as the 3 channels. If axis 3 holds the"
        " channels, move it to axis 1, or set channels='last' in Python."
    ),
    FewBits("a.png", 12, 4095): (
        "a.png has 16-bit pixels that use only 12 bits. Using 4095 as white."
    ),
    TooSmall(2, 32): "Leaving out 2 pictures smaller than 32 × 32.",
}


@pytest.mark.parametrize("error", MESSAGES, ids=lambda error: type(error).__name__)
def test_the_sentence_has_the_fields(error: Exception) -> None:
    assert str(error) == MESSAGES[error]
