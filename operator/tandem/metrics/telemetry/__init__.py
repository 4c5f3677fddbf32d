"""What the serving pods' metrics say: pages scraped, counters turned into figures over a window.

A `source` (`scrape` of the pods, or `prometheus`) brings pages' numbers (`exposition`, `page`) into `windows.Store`,
which gives `figures`.
"""
