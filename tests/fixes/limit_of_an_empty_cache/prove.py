from code import *

assert dynamic() == 7, dynamic()
assert static() == 5
print("OK")
