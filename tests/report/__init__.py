"""How findings are shown, whoever found them."""
