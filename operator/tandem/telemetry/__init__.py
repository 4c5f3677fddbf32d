"""What the serving pods' metrics say: pages scraped, counters turned into figures over a window."""
