// Argo CD's application controller and repository server, and the Redis that they cache in, in one program: what
// serves Applications. Argo CD's own program has its API server, too, which the tests do not need.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	repositories "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

func main() {
	commands := &cobra.Command{Use: "argo-cd", SilenceUsage: true}
	redis := &cobra.Command{Use: "redis ADDRESS", Args: cobra.ExactArgs(1), RunE: serveRedis}
	for name, command := range map[string]*cobra.Command{
		"controller": controller.NewCommand(), "repo-server": repositories.NewCommand(), "redis": redis,
	} {
		command.Use = name
		commands.AddCommand(command)
	}
	if err := commands.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveRedis(_ *cobra.Command, arguments []string) error {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(arguments[0]); err != nil {
		return err
	}
	defer server.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	return nil
}
