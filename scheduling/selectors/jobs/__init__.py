"""Jobs: lists, single jobs, reasons of waits, start estimates."""
