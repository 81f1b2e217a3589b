"""Speed measurements of embedding on this machine for `elmo bench`: all variants, the roofline, and how cost grows."""
