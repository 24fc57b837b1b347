"""Shopping as in WebShop. product, synthetic, files, catalogue: the products; search, visit, pages: the shop; goals,
score: what is requested, and how a purchase is scored."""
