"""Shopping after WebShop. product, synthetic, files, catalogue: what is sold; search, visit, pages: the shop; goals,
score: what is wanted, and what a purchase is worth."""
