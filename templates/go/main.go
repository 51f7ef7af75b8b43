// The program that the host starts. The handler is in export_dqhost_queue_handler.
package main

import _ "handler/bindings/wit_exports"

func main() {}
