from whatwhere.restoration.denoiser import Denoiser as Denoiser
from whatwhere.restoration.denoiser import load_denoiser as load_denoiser
from whatwhere.restoration.dictionary import load_dictionary as load_dictionary
from whatwhere.restoration.estimate import estimate_noise as estimate_noise
from whatwhere.restoration.noise import NoiseEstimate as NoiseEstimate
from whatwhere.restoration.restore import denoise as denoise
from whatwhere.restoration.restore import inpaint as inpaint
from whatwhere.restoration.settings import RestorationSpec as RestorationSpec
