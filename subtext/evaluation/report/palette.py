"""Colours of the plots, by role, and their width.

The page replaces each value by a CSS variable of that role, so that one drawing serves light and
dark. Series differ in marker and line too, never in colour alone. Hues: Okabe and Ito (2008),
Color universal design.
"""

PALETTE = {
    "paper": "#fefefe",
    "ink": "#1f2328",
    "muted": "#5c6670",
    "grid": "#dde2e6",
    "base": "#6b7680",
    "warm": "#c77c02",
    "trained": "#0072b2",
    "champion": "#008a64",
    "ablation": "#a8487f",
}
WIDTH_IN = 4.4
"""As wide as a phone shows without shrinking the text."""
