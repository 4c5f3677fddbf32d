// Command probe shows from inside a pod what the cluster's network gives it.
//
//	GET /                  answers "ok"
//	GET /lookup?name=N     the addresses of N, one a line
//	GET /dial?address=H:P  "ok" when a TCP connection to H:P opens
//
// A lookup or connection that fails answers 502 with the reason.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

const patience = 5 * time.Second

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	http.HandleFunc("/lookup", lookup)
	http.HandleFunc("/dial", dial)
	log.Fatal(http.ListenAndServe(":8080", nil))
}

func lookup(w http.ResponseWriter, r *http.Request) {
	addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, strings.Join(addresses, "\n"))
}

func dial(w http.ResponseWriter, r *http.Request) {
	connection, err := net.DialTimeout("tcp", r.URL.Query().Get("address"), patience)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer connection.Close()
	fmt.Fprintln(w, "ok")
}
