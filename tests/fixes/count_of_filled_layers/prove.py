from code import *

assert bare() == (False, 0)
assert fresh() == (False, 0), fresh()
print("OK")
