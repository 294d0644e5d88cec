// What Go does that C programs hardly do: calls from stacks of two kilobytes that move and grow, handlers on a stack of its own that look at
// the interrupted registers and change them, thousands of signals, processes made by a clone of its own.
package main

/*
#include <string.h>
#include <unistd.h>
static int deep(int n) { char pad[512]; memset(pad, n, sizeof pad); return n ? deep(n - 1) + (pad[n] & 1) : getppid() > 0; }
*/
import "C"

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

const relays, rounds = 24, 60

func check(good bool, what string) {
	if !good {
		fmt.Fprintln(os.Stderr, "check failed:", what)
		os.Exit(1)
	}
}

// Calls from a deep stack make it grow, and it shrinks again at the next collection.
func descend(n int, f func()) int {
	var pad [200]byte
	pad[n%200] = byte(n)
	if n == 0 {
		f()
		return 0
	}
	return descend(n-1, f) + int(pad[n%200])&1
}

func fault() (said string) {
	defer func() { said = fmt.Sprint(recover()) }()
	var nowhere *int
	*nowhere = 1
	return "nothing"
}

func relay(number int, done *sync.WaitGroup) {
	defer done.Done()
	from, to, err := os.Pipe()
	check(err == nil, "pipe")
	go func() {
		for i := 0; i < rounds; i++ {
			descend(i, func() { fmt.Fprintf(to, "%04d", number+i) })
			time.Sleep(time.Millisecond)
		}
		to.Close()
	}()
	buffer := make([]byte, 4)
	for i := 0; i < rounds; i++ {
		_, err := io.ReadFull(from, buffer)
		check(err == nil && string(buffer) == fmt.Sprintf("%04d", number+i), "what the pipe has")
		if i%10 == 0 {
			check(fault() == "runtime error: invalid memory address or nil pointer dereference", "fault")
			C.deep(40)
		}
	}
	_, err = from.Read(buffer)
	check(err == io.EOF, "end of the pipe")
}

type nobody struct{}

func (nobody) Write(bytes []byte) (int, error) { return len(bytes), nil }

func main() {
	check(pprof.StartCPUProfile(nobody{}) == nil, "profile")
	var done sync.WaitGroup
	for number := 0; number < relays; number++ {
		done.Add(1)
		go relay(number, &done)
	}
	for i := 0; i < 4; i++ {
		said, err := exec.Command("/bin/echo", "hello").Output()
		check(err == nil && string(said) == "hello\n", "what a child says")
		// Nobody else runs here unless a signal makes room.
		for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
		}
		runtime.GC()
	}
	done.Wait()
	pprof.StopCPUProfile()
	fmt.Println("ok")
}
