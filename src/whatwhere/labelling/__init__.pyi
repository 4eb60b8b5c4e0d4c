from whatwhere.labelling.session import Labelling as Labelling
