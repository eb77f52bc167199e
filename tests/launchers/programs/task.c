/* One task of a parallel job: leaks its rank + 1 OpenCL buffers, then ends in the way that is asked for.
   task [abort RANK | wait RANK]: RANK aborts the job, or waits to be ended while the others have ended. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leak(int blocks) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) exit(10);
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  for (int i = 0; i < blocks; ++i)
    if (!clCreateBuffer(context, CL_MEM_READ_WRITE, 65536, NULL, NULL)) exit(11);
}

int main(int count, char** arguments) {
  const char* const way = count > 1 ? arguments[1] : "";
  const int chosen = count > 2 ? atoi(arguments[2]) : -1;
  int rank, ranks;
#ifdef WITH_MPI
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#else
  rank = getenv("SLURM_PROCID") ? atoi(getenv("SLURM_PROCID")) : 0;
  ranks = getenv("SLURM_NTASKS") ? atoi(getenv("SLURM_NTASKS")) : 1;
#endif
  leak(rank + 1);
  printf("rank %d of %d\n", rank, ranks);
  fflush(stdout);
#ifdef WITH_MPI
  MPI_Barrier(MPI_COMM_WORLD);
  if (!strcmp(way, "abort") && rank == chosen) MPI_Abort(MPI_COMM_WORLD, 7);
  if (!strcmp(way, "abort")) pause();
#endif
  if (!strcmp(way, "wait") && (chosen == rank || chosen == -1)) {
    printf("rank %d waits\n", rank);
    fflush(stdout);
    pause();
  }
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return 0;
}
