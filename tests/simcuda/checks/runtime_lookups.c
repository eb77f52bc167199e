// Starts the runtime over recording_driver.c. Run by runtime_checks.py, which reads what the driver prints.
#include <cuda_runtime_api.h>

int main(void) { return cudaFree(NULL) == cudaErrorCallRequiresNewerDriver ? 0 : 1; }
