// A service in Go that handles the records of a worker with `http`: go run main.go
//
// It needs nothing but Go's standard library.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const tolerance = 5 * time.Minute

type order struct {
	Amount   *float64 `json:"amount"`
	Currency string   `json:"currency"`
}

type service struct {
	key  []byte
	lock sync.Mutex
	seen map[string]bool // a database with a unique index, in a real service
}

// isSigned says whether a request is from the worker, and recent: Standard Webhooks.
func (s *service) isSigned(header http.Header, body []byte) bool {
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%s.%s.", id, sent)
	mac.Write(body)
	wanted := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range strings.Fields(header.Get("webhook-signature")) {
		if subtle.ConstantTimeCompare([]byte(signature), []byte(wanted)) == 1 {
			return true
		}
	}
	return false
}

func (s *service) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the worker posts it again
	}
	if !s.isSigned(request.Header, body) {
		http.Error(answer, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	var order order
	if json.Unmarshal(body, &order) != nil || order.Amount == nil {
		http.Error(answer, "an order has an amount", http.StatusUnprocessableEntity)
		return
	}
	id := request.Header.Get("Idempotency-Key")
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.seen[id] {
		s.seen[id] = true
		fmt.Printf("charged %s for %s\n", strconv.FormatFloat(*order.Amount, 'f', -1, 64), id)
	}
	answer.Header().Set("Content-Type", "application/json")
	json.NewEncoder(answer).Encode(map[string]any{"produce": []any{map[string]any{
		"topic": "order-events", "key": id, "value": map[string]any{"paid": order.Amount},
	}}})
}

func main() {
	secret := strings.TrimPrefix(os.Getenv("HOOK_SECRET"), "whsec_")
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil || len(key) == 0 {
		log.Fatal("set HOOK_SECRET to the secret of the worker")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/events\n", listener.Addr())
	log.Fatal(http.Serve(listener, &service{key: key, seen: map[string]bool{}}))
}
