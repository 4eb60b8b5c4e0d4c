"""The data sets known by name: their files with checksums, mirrors, licence and citation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whatwhere.errors import ImageError


@dataclass(frozen=True)
class File:
    """A file of the cache: `sha256` and `size` are of exactly these bytes.

    A file whose name ends in .gz is stored compressed; any other is stored decompressed, whoever compressed it.
    """

    name: str
    sha256: str
    size: int

    @property
    def compressed(self) -> bool:
        return self.name.endswith(".gz")

    @property
    def download_name(self) -> str:
        """Its name on the mirrors, which all serve gzip files."""
        return self.name if self.compressed else f"{self.name}.gz"


@dataclass(frozen=True)
class Split:
    """The files of a split: images and labels."""

    images: File
    labels: File


class FileSet(Protocol):
    """What the cache and downloads need: files under one name, in the package or on mirrors."""

    @property
    def name(self) -> str: ...
    @property
    def cache_name(self) -> str: ...
    @property
    def files(self) -> tuple[File, ...]: ...
    @property
    def mirrors(self) -> tuple[str, ...]: ...
    @property
    def embedded(self) -> Path | None: ...
    @property
    def how_to_get(self) -> str: ...


@dataclass(frozen=True)
class Entry:
    """A data set with a training and a test split."""

    name: str
    title: str
    train: Split
    test: Split
    licence: str
    citation: str
    mirrors: tuple[str, ...] = ()
    embedded: Path | None = None
    """The folder of the files, if they are part of the package."""

    @property
    def cache_name(self) -> str:
        """The name of its folder in the cache."""
        return self.name

    @property
    def how_to_get(self) -> str:
        """The command that downloads it."""
        return f"whatwhere data get {self.name}"

    @property
    def files(self) -> tuple[File, ...]:
        return (self.train.images, self.train.labels, self.test.images, self.test.labels)


LECUN_1998 = (
    "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document recognition. "
    "Proceedings of the IEEE 86(11), 1998."
)

DIGITS = Entry(
    name="digits",
    title="5,000 training and 2,000 test digits of MNIST, included in the package",
    train=Split(
        File("train-images.idx.gz", "8d1eae75b5aff396cd29c4ac1bf9940059221ef7e568d080f6699358bfad60c3", 804_877),
        File("train-labels.idx.gz", "183f0d6e1c50136e698f8b78509f7a351c300f33cb73b17cf97a81d900371324", 2_534),
    ),
    test=Split(
        File("test-images.idx.gz", "fa2fa0f453d30da7368de1b3d971c4d7d337993bb97663d604822d2b60473905", 312_378),
        File("test-labels.idx.gz", "9016d84c0ff2a402884fc39ac1dfcb3ec411c5581759174110390192c6e1c7b5", 1_032),
    ),
    licence="CC BY-SA 3.0",
    citation=LECUN_1998,
    embedded=Path(__file__).parent / "digits",
)

MNIST = Entry(
    name="mnist",
    title="MNIST: 60,000 training and 10,000 test images of handwritten digits",
    train=Split(
        File(
            "train-images-idx3-ubyte",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            47_040_016,
        ),
        File("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 60_008),
    ),
    test=Split(
        File("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 7_840_016),
        File("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 10_008),
    ),
    licence="CC BY-SA 3.0",
    citation=LECUN_1998,
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

FASHION_MNIST = Entry(
    name="fashion-mnist",
    title="Fashion-MNIST: 60,000 training and 10,000 test images of clothes",
    train=Split(
        File(
            "train-images-idx3-ubyte",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            47_040_016,
        ),
        File("train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 60_008),
    ),
    test=Split(
        File("t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b", 7_840_016),
        File("t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 10_008),
    ),
    licence="MIT",
    citation=(
        "H. Xiao, K. Rasul, R. Vollgraf. Fashion-MNIST: a novel image dataset for benchmarking machine learning "
        "algorithms. arXiv:1708.07747, 2017."
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
)

# Stored compressed: the known checksums of Kuzushiji-MNIST are those of the published .gz files.
KMNIST = Entry(
    name="kmnist",
    title="Kuzushiji-MNIST: 60,000 training and 10,000 test images of cursive Japanese characters",
    train=Split(
        File(
            "train-images-idx3-ubyte.gz",
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            18_165_135,
        ),
        File(
            "train-labels-idx1-ubyte.gz",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            29_497,
        ),
    ),
    test=Split(
        File(
            "t10k-images-idx3-ubyte.gz",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            3_041_136,
        ),
        File("t10k-labels-idx1-ubyte.gz", "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c", 5_120),
    ),
    licence="CC BY-SA 4.0",
    citation=(
        "T. Clanuwat, M. Bober-Irizar, A. Kitamoto, A. Lamb, K. Yamamoto, D. Ha. Deep learning for classical "
        "Japanese literature. arXiv:1812.01718, 2018. KMNIST Dataset (created by CODH), adapted from Kuzushiji "
        "Dataset (created by NIJL and others), doi:10.20676/00000341."
    ),
    mirrors=(
        "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    ),
)

CATALOGUE = {entry.name: entry for entry in (DIGITS, MNIST, FASHION_MNIST, KMNIST)}


def find(name: str) -> Entry:
    """The data set of this name."""
    if name not in CATALOGUE:
        raise ImageError(f"no data set is called {name!r}; the known ones are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
