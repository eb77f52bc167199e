// A machine without NVLink and fabric: PyTorch's expandable segments ask NVML for them.
enum { kSuccess = 0, kNotSupported = 3 };
int nvmlInit_v2(void) { return kSuccess; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, const char** device) {
  *device = bus;
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses(const char* device, unsigned* count, void* found) {
  (void)device, (void)found;
  *count = 0;
  return kSuccess;
}
int nvmlDeviceGetGpuFabricInfoV(const char* device, void* info) { return (void)device, (void)info, kNotSupported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(const char* device, unsigned link, int* type) {
  return (void)device, (void)link, (void)type, kNotSupported;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const char* device, unsigned link, void* info) {
  return (void)device, (void)link, (void)info, kNotSupported;
}
