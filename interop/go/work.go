package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// Acquires and releases free locks, one pair after another. It runs inside the driver, so that the
// measured time does not include the line protocol.
func pairs(client *lockClient, asked *request) (answer, error) {
	acquire, release := make([]int64, 0, asked.Count), make([]int64, 0, asked.Count)
	for pair := range asked.Count {
		asked.Key = asked.Keys[pair%len(asked.Keys)]
		began := time.Now()
		if _, err := client.acquire(asked); err != nil {
			return nil, err
		}
		acquired := time.Now()
		if err := client.release(asked); err != nil {
			return nil, err
		}
		acquire = append(acquire, acquired.Sub(began).Microseconds())
		release = append(release, time.Since(acquired).Microseconds())
	}
	return answer{"acquireMicros": acquire, "releaseMicros": release}, nil
}

// Lets each contender acquire and release the same key once per round.
func contend(client *lockClient, asked *request) (answer, error) {
	contenders := make([]*lockClient, asked.Contenders)
	for i := range contenders {
		another, err := client.another(i)
		if err != nil {
			return nil, err
		}
		contenders[i] = another
	}
	var holders, overlaps atomic.Int32
	failures := make(chan error, len(contenders))
	var all sync.WaitGroup
	began := time.Now()
	for _, contender := range contenders {
		all.Add(1)
		go func() {
			defer all.Done()
			failures <- takeTurns(contender, asked, &holders, &overlaps)
		}()
	}
	all.Wait()
	took := time.Since(began)
	for range contenders {
		if err := <-failures; err != nil {
			return nil, err
		}
	}
	return answer{"micros": took.Microseconds(), "overlaps": overlaps.Load()}, nil
}

func takeTurns(client *lockClient, asked *request, holders, overlaps *atomic.Int32) error {
	for range asked.Rounds {
		if _, err := client.acquire(asked); err != nil {
			return err
		}
		if holders.Add(1) != 1 {
			overlaps.Add(1)
		}
		time.Sleep(millis(asked.WorkMillis))
		holders.Add(-1)
		if err := client.release(asked); err != nil {
			return err
		}
	}
	return nil
}
