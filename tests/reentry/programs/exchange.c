// Two ranks exchange buffers of 1 KiB to 40 MiB, which they allocate and free in each round.
// usage: exchange ROUNDS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char** arguments) {
  static const int sizes[] = {1 << 10, 64 << 10, 1 << 20, 8 << 20, 40 << 20};
  MPI_Init(&count, &arguments);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = count == 2 ? atoi(arguments[1]) : 0, other = !rank;
  if (ranks != 2 || rounds < 1) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int round = 0; round < rounds; ++round) {
    const int bytes = sizes[round % 5];
    char* const sent = malloc((size_t)bytes);
    char* const received = malloc((size_t)bytes);
    memset(sent, 2 * round + rank, (size_t)bytes);
    MPI_Sendrecv(sent, bytes, MPI_CHAR, other, 0, received, bytes, MPI_CHAR, other, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int at = 0; at < bytes; ++at)
      if (received[at] != (char)(2 * round + other)) MPI_Abort(MPI_COMM_WORLD, 3);
    free(received);
    free(sent);
  }
  MPI_Finalize();
  if (rank == 0) printf("%d rounds, every buffer whole\n", rounds);
  return 0;
}
