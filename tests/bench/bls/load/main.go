// Command load plays prepared requests against Triton's gRPC streams, in a closed loop, as cheaply as it
// can: a stream a client, each sends the next request when one has ended, responses are kept as they came.
//
// It reads a Plan as JSON from its standard input, writes a line "begin" and a line "end" when the window
// does, and then a Record as JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const method = "/inference.GRPCInferenceService/ModelStreamInfer"

// last is in a serialised response exactly when it is its request's last: the map entry
// `triton_final_response` of its parameters with `bool_param` true.
var last = []byte("triton_final_response\x12\x02\x08\x01")

// refusal begins a serialised response that holds an error: its field 1, never empty when present.
var refusal = []byte("\x0a")

// Plan says what to send: serialised ModelInferRequests, the first `Streams` of them at once. Seconds.
type Plan struct {
	URL      string   `json:"url"`
	Streams  int      `json:"streams"`
	WarmUp   float64  `json:"warm_up"`
	Seconds  float64  `json:"seconds"`
	Requests [][]byte `json:"requests"`
}

// Chunk is a serialised ModelStreamInferResponse and when it came, in seconds.
type Chunk struct {
	At  float64 `json:"at"`
	Raw []byte  `json:"raw"`
}

// Answer is what came for a request; Index is its place in the plan.
type Answer struct {
	Index  int     `json:"index"`
	Sent   float64 `json:"sent"`
	Ended  bool    `json:"ended"`
	Chunks []Chunk `json:"chunks"`
}

// Record is all that happened; CPU counts this process's seconds inside the window.
type Record struct {
	Begin   float64   `json:"begin"`
	End     float64   `json:"end"`
	CPU     float64   `json:"cpu"`
	Answers []*Answer `json:"answers"`
}

// raw passes messages on as bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

// player hands out requests and collects answers.
type player struct {
	plan    Plan
	start   time.Time
	mutex   sync.Mutex
	next    int
	over    bool
	answers []*Answer
}

func (p *player) now() float64 { return time.Since(p.start).Seconds() }

// take starts the next request; nil when the window is over.
func (p *player) take() (*Answer, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.over {
		return nil, nil
	}
	if p.next == len(p.plan.Requests) {
		return nil, fmt.Errorf("all %d prepared requests were sent before the window's end", p.next)
	}
	answer := &Answer{Index: p.next}
	p.next++
	p.answers = append(p.answers, answer)
	return answer, nil
}

// stream plays requests one after the other until the window is over.
func (p *player) stream(connection *grpc.ClientConn) error {
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	call, err := connection.NewStream(context.Background(), description, method)
	if err != nil {
		return err
	}
	for {
		answer, err := p.take()
		if err != nil {
			return err
		}
		if answer == nil {
			return call.CloseSend()
		}
		answer.Sent = p.now()
		if err := call.SendMsg(p.plan.Requests[answer.Index]); err != nil {
			return err
		}
		for !answer.Ended {
			var message []byte
			if err := call.RecvMsg(&message); err != nil {
				return fmt.Errorf("request %d: %w", answer.Index, err)
			}
			answer.Chunks = append(answer.Chunks, Chunk{p.now(), message})
			answer.Ended = bytes.Contains(message, last) || bytes.HasPrefix(message, refusal)
		}
	}
}

// play runs all streams through warm-up and window.
func (p *player) play() (*Record, error) {
	connection, err := grpc.NewClient(p.plan.URL,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ended := make(chan error, p.plan.Streams)
	for range p.plan.Streams {
		go func() { ended <- p.stream(connection) }()
	}
	record := &Record{}
	if err := wait(ended, p.plan.WarmUp); err != nil {
		return nil, err
	}
	cpu := cpuSeconds()
	record.Begin = p.now()
	fmt.Println("begin")
	if err := wait(ended, p.plan.Seconds); err != nil {
		return nil, err
	}
	record.End, record.CPU = p.now(), cpuSeconds()-cpu
	fmt.Println("end")
	p.mutex.Lock()
	p.over = true
	p.mutex.Unlock()
	for range p.plan.Streams {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	record.Answers = p.answers
	return record, nil
}

// wait lets the time pass; a stream that ends meanwhile has failed.
func wait(ended <-chan error, seconds float64) error {
	select {
	case err := <-ended:
		return fmt.Errorf("a stream ended early: %w", err)
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails for no valid argument
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func run() error {
	p := &player{start: time.Now()}
	if err := json.NewDecoder(os.Stdin).Decode(&p.plan); err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	record, err := p.play()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(record)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
