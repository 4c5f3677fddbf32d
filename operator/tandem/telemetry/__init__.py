"""What the serving pods' metrics say: pages scraped, counters turned into figures over a window.

`source` (scrape | prometheus) brings a `page`'s numbers (exposition) into `windows.Store`, which gives `figures`.
"""
