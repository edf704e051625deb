/* OpenMPI's all-reduce of floats, for bench/allreduce.py to compare with: mpi_allreduce NUMBERS
 * COUNT TIMES WAIT. Each of TIMES rounds does COUNT all-reduces, and begins them all before it
 * waits for any, unless WAIT is 1. The first rank prints a JSON object: seconds a round in the
 * slowest rank, and CPU seconds a round of all ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define WARM 4 /* operations before the rounds, which set up connections and warm up TCP */

static double cpu_s(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
		(double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void run_round(float **vectors, int numbers, int count, int wait, MPI_Request *requests)
{
	for (int i = 0; i < count; i++) {
		if (wait) {
			MPI_Allreduce(MPI_IN_PLACE, vectors[i], numbers, MPI_FLOAT, MPI_SUM,
				MPI_COMM_WORLD);
		} else {
			MPI_Iallreduce(MPI_IN_PLACE, vectors[i], numbers, MPI_FLOAT, MPI_SUM,
				MPI_COMM_WORLD, &requests[i]);
		}
	}
	if (!wait) {
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	}
}

static int number_at(int argc, char **argv, int i)
{
	return argc == 5 ? (int)strtol(argv[i], NULL, 10) : 0;
}

int main(int argc, char **argv)
{
	int numbers = number_at(argc, argv, 1);
	int count = number_at(argc, argv, 2);
	int times = number_at(argc, argv, 3);
	int wait = number_at(argc, argv, 4) == 1;
	float **vectors = calloc((size_t)count + 1, sizeof(*vectors));
	MPI_Request *requests = calloc((size_t)count + 1, sizeof(*requests));
	double took[2];
	double all[2];
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < count; i++) {
		vectors[i] = calloc((size_t)numbers, sizeof(float));
		for (int j = 0; j < numbers; j++) {
			vectors[i][j] = 0.0F;
		}
	}
	for (int t = 0; t < WARM; t += count) {
		run_round(vectors, numbers, count, wait, requests);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	took[0] = MPI_Wtime();
	took[1] = cpu_s();
	for (int t = 0; t < times; t++) {
		run_round(vectors, numbers, count, wait, requests);
	}
	took[0] = (MPI_Wtime() - took[0]) / times;
	took[1] = (cpu_s() - took[1]) / times;
	MPI_Reduce(&took[0], &all[0], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&took[1], &all[1], 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("{\"wall\": %.9f, \"cpu\": %.9f}\n", all[0], all[1]);
	}
	MPI_Finalize();
	return 0;
}
