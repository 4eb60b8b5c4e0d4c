from whatwhere.codes.files import load_codes as load_codes
