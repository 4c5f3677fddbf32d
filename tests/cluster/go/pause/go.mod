module tandem.dev/cluster/pause

go 1.26.0
