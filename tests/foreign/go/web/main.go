// A web server whose answers are known, which calls C for each of them.
package main

// #include <unistd.h>
import "C"
import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "profiled" {
		pprof.StartCPUProfile(io.Discard)
	}
	http.HandleFunc("/", func(out http.ResponseWriter, in *http.Request) {
		waste := make([]byte, 20000)
		fmt.Fprintf(out, "%05d %05d\n", len(waste), map[bool]int{true: 1}[C.getppid() > 0])
	})
	http.HandleFunc("/collect", func(out http.ResponseWriter, in *http.Request) {
		runtime.GC()
		fmt.Fprintln(out, "20000 00001")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, nil))
}
