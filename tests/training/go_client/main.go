// A feedback client in the shape of the reference's: one connection, one message in flight, encoding/json on both sides,
// 2 seconds for each answer. It prints one JSON line per message and stops at the first thing that a client of that shape
// could not live with.
//
//	main SOCKET N_FEATURES MESSAGES
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strconv"
	"time"
)

const deadline = 2 * time.Second

type message struct {
	JobID     string    `json:"job_id"`
	Features  []float32 `json:"features"`
	TrueScore float32   `json:"true_score"`
}

type ack struct {
	OK            bool    `json:"ok"`
	Step          int64   `json:"step"`
	Trained       bool    `json:"trained"`
	Loss          float64 `json:"loss"`
	Checkpoint    *string `json:"checkpoint"`
	Error         string  `json:"error"`
	RetryQueued   bool    `json:"retry_queued"`
	TrainingError string  `json:"training_error"`
	Retryable     bool    `json:"retryable"`
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// exchange sends one message and decodes one answer, each within the deadline.
func exchange(connection net.Conn, reader *bufio.Reader, value any) ack {
	encoded, err := json.Marshal(value)
	if err != nil {
		fail("encoding: %v", err)
	}
	if err := connection.SetWriteDeadline(time.Now().Add(deadline)); err != nil {
		fail("write deadline: %v", err)
	}
	if _, err := connection.Write(append(encoded, '\n')); err != nil {
		fail("write: %v", err)
	}
	if err := connection.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		fail("read deadline: %v", err)
	}
	line, err := reader.ReadBytes('\n')
	if err != nil {
		fail("read: %v", err)
	}
	var answer ack
	if err := json.Unmarshal(line, &answer); err != nil {
		fail("decoding %q: %v", line, err)
	}
	return answer
}

func main() {
	if len(os.Args) != 4 {
		fail("usage: main SOCKET N_FEATURES MESSAGES")
	}
	width, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fail("N_FEATURES: %v", err)
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		fail("MESSAGES: %v", err)
	}
	connection, err := net.DialTimeout("unix", os.Args[1], 5*time.Second)
	if err != nil {
		fail("dial: %v", err)
	}
	defer connection.Close()
	reader := bufio.NewReader(connection)
	random := rand.New(rand.NewSource(1))
	out := json.NewEncoder(os.Stdout)
	for i := 0; i < count; i++ {
		features := make([]float32, width)
		for j := range features {
			features[j] = random.Float32()
		}
		answer := exchange(connection, reader, message{fmt.Sprintf("job-%d", i), features, random.Float32() * 100})
		if err := out.Encode(answer); err != nil {
			fail("printing: %v", err)
		}
	}
	// What the reference's client can send by mistake: a nil slice becomes null, a short one stays short.
	for _, features := range [][]float32{nil, make([]float32, width+1)} {
		if err := out.Encode(exchange(connection, reader, message{"bad", features, 1})); err != nil {
			fail("printing: %v", err)
		}
	}
}
