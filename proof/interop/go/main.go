// Runs the Go lock client with the line protocol that proof/interop/README.md describes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"cirello.io/dynamolock/v2"
)

// Most lines are short. This limit is for payloads.
const longestLine = 1 << 20

// A request of the protocol. Missing fields are zero, which is their default.
type request struct {
	Do       string `json:"do"`
	Endpoint string `json:"endpoint"`
	Table    string `json:"table"`
	Owner    string `json:"owner"`

	LeaseMillis int64 `json:"leaseMillis"`
	RenewMillis int64 `json:"renewMillis"`

	Key             string            `json:"key"`
	WaitMillis      int64             `json:"waitMillis"`
	PollMillis      int64             `json:"pollMillis"`
	Data            *string           `json:"data"`
	ReplaceData     bool              `json:"replaceData"`
	DeleteOnRelease bool              `json:"deleteOnRelease"`
	Attributes      map[string]string `json:"attributes"`
	Delete          *bool             `json:"delete"`

	Keys       []string `json:"keys"`
	Count      int      `json:"count"`
	Contenders int      `json:"contenders"`
	Rounds     int      `json:"rounds"`
	WorkMillis int64    `json:"workMillis"`
}

type answer map[string]any

// The lock is no longer this client's.
type lost struct{ error }

func main() {
	var client *lockClient
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		told, err := answer(nil), json.Unmarshal(lines.Bytes(), &asked)
		switch {
		case err != nil:
		case asked.Do == "open":
			client, err = open(&asked)
		default:
			told, err = carryOut(client, &asked)
		}
		if told == nil {
			told = answer{}
		}
		told["ok"] = err == nil
		if err != nil {
			told["why"], told["error"] = why(err), fmt.Sprintf("%T: %v", err, err)
		}
		if out.Encode(told) != nil {
			return
		}
	}
}

func carryOut(client *lockClient, asked *request) (answer, error) {
	if client == nil {
		return nil, errors.New("the first request must be open")
	}
	switch asked.Do {
	case "acquire":
		return client.acquire(asked)
	case "renew":
		return client.renew(asked)
	case "release":
		return nil, client.release(asked)
	case "read":
		return client.read(asked)
	case "pairs":
		return pairs(client, asked)
	case "contend":
		return contend(client, asked)
	}
	return nil, fmt.Errorf("unknown action %q", asked.Do)
}

func why(err error) string {
	var notGranted *dynamolock.LockNotGrantedError
	switch {
	case errors.As(err, new(lost)):
		return "lost"
	case errors.As(err, &notGranted):
		return "held"
	}
	return "failed"
}
