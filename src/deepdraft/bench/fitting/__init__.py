"""Ways to make a prompt cost exactly what was asked, one file each; which one fits depends on who counts.

counted       a cheap counter: build, count the whole, correct
ids           token ids: cut
words         usage only, and words known to cost one token: add up
blocks        usage only, any other text: measure blocks once, add up
closed_loop   usage only, and counts that don't add up: try, look, correct
"""
