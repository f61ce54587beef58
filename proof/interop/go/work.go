package main

import (
	"slices"
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
	turns := make([][][3]int64, len(contenders))
	var all sync.WaitGroup
	began := time.Now()
	for i, contender := range contenders {
		all.Add(1)
		go func() {
			defer all.Done()
			taken, err := takeTurns(contender, asked, &holders, &overlaps, began)
			turns[i] = taken
			failures <- err
		}()
	}
	all.Wait()
	took := time.Since(began)
	for range contenders {
		if err := <-failures; err != nil {
			return nil, err
		}
	}
	return answer{"micros": took.Microseconds(), "overlaps": overlaps.Load(), "turns": slices.Concat(turns...)}, nil
}

// Returns of each turn when its caller came, was granted the lock and began to release it, in microseconds.
func takeTurns(client *lockClient, asked *request, holders, overlaps *atomic.Int32, began time.Time) ([][3]int64, error) {
	turns := make([][3]int64, 0, asked.Rounds)
	micros := func() int64 { return time.Since(began).Microseconds() }
	for range asked.Rounds {
		came := micros()
		if _, err := client.acquire(asked); err != nil {
			return nil, err
		}
		granted := micros()
		if holders.Add(1) != 1 {
			overlaps.Add(1)
		}
		time.Sleep(millis(asked.WorkMillis))
		holders.Add(-1)
		turns = append(turns, [3]int64{came, granted, micros()})
		if err := client.release(asked); err != nil {
			return nil, err
		}
	}
	return turns, nil
}
