// Command gitops-health says how Flux and Argo CD see an object.
//
// It reads objects from stdin, as JSON, one after the other, and writes for each a line of JSON:
//
//	{"kstatus": "Current", "argo": "Healthy", "message": "..."}
//
// kstatus is the library that Flux asks. The argument is a health check for Argo CD, a script that sees the object
// as `obj`; it runs in the Lua that Argo CD runs it in, with no library but those that Argo CD opens.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type verdict struct {
	Kstatus string `json:"kstatus"`
	Argo    string `json:"argo"`
	Message string `json:"message"`
}

func main() {
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var object map[string]any
		if err := in.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		seen, err := judge(string(script), object)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(seen); err != nil {
			log.Fatal(err)
		}
	}
}

func judge(script string, object map[string]any) (verdict, error) {
	argo, message, err := argoHealth(script, object)
	if err != nil {
		return verdict{}, err
	}
	computed, err := status.Compute(&unstructured.Unstructured{Object: integers(object).(map[string]any)})
	if err != nil {
		return verdict{}, err
	}
	return verdict{string(computed.Status), argo, message}, nil
}

func argoHealth(script string, object map[string]any) (health, message string, err error) {
	vm := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer vm.Close()
	for _, open := range []lua.LGFunction{lua.OpenPackage, lua.OpenBase, lua.OpenTable, lua.OpenString} {
		vm.Push(vm.NewFunction(open))
		vm.Call(0, 0)
	}
	vm.SetGlobal("obj", value(vm, object))
	if err := vm.DoString(script); err != nil {
		return "", "", err
	}
	returned, ok := vm.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", errors.New("the health check returned no table")
	}
	return lua.LVAsString(returned.RawGetString("status")), lua.LVAsString(returned.RawGetString("message")), nil
}

// value is JSON as Lua sees it; null is nil.
func value(vm *lua.LState, from any) lua.LValue {
	switch from := from.(type) {
	case bool:
		return lua.LBool(from)
	case float64:
		return lua.LNumber(from)
	case string:
		return lua.LString(from)
	case []any:
		table := vm.NewTable()
		for _, each := range from {
			table.Append(value(vm, each))
		}
		return table
	case map[string]any:
		table := vm.NewTable()
		for key, each := range from {
			table.RawSetString(key, value(vm, each))
		}
		return table
	}
	return lua.LNil
}

// integers makes whole numbers int64, as a Kubernetes client does; kstatus finds no others.
func integers(from any) any {
	switch from := from.(type) {
	case float64:
		if from == float64(int64(from)) {
			return int64(from)
		}
	case []any:
		for i, each := range from {
			from[i] = integers(each)
		}
	case map[string]any:
		for key, each := range from {
			from[key] = integers(each)
		}
	}
	return from
}
