"""Every table and figure of the paper: its runs, its picture, and whether its claim holds in them."""
