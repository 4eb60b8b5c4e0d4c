from whatwhere.codes.files import Codes as Codes
from whatwhere.codes.files import load_codes as load_codes
from whatwhere.codes.settings import EncodeOptions as EncodeOptions
from whatwhere.codes.writer import write_codes as write_codes
