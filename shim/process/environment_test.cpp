// Ranks from the variables of each launcher.
#include "shim/process/environment.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <map>
#include <string>

namespace cistern {
namespace {

std::map<std::string, std::string> variables;
const char* answer(const char* name) {
  auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}
Ranks ranks_of(std::map<std::string, std::string> set) {
  variables = std::move(set);
  return read_ranks(answer);
}

TEST(Ranks, OnlySeveralOfOpenMpiDieTogether) {
  const auto together = [](std::map<std::string, std::string> set) {
    variables = std::move(set);
    return dies_with_other_ranks(answer);
  };
  EXPECT_TRUE(together({{"OMPI_COMM_WORLD_SIZE", "2"}}));
  EXPECT_FALSE(together({{"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(together({{"OMPI_COMM_WORLD_SIZE", "many"}}));
  EXPECT_FALSE(together({{"SLURM_NTASKS", "4"}, {"PMI_SIZE", "4"}}));
}

TEST(Ranks, TheirLauncherIsKnownByItsName) {
  char own[16] = "";
  ASSERT_EQ(prctl(PR_GET_NAME, own), 0);
  const auto launches_as = [](const char* name) { return prctl(PR_SET_NAME, name) == 0 && launches_ranks(); };
  for (const char* name : {"mpirun", "mpirun.openmpi", "mpiexec.hydra", "orted", "srun", "hydra_pmi_proxy"})
    EXPECT_TRUE(launches_as(name)) << name;
  for (const char* name : {"", "mpi", "mpirunner", "srun_job", "python3"}) EXPECT_FALSE(launches_as(name)) << name;
  prctl(PR_SET_NAME, own);
}

TEST(Ranks, OfEachLauncher) {
  EXPECT_EQ(ranks_of({}).rank, std::nullopt);
  const Ranks open_mpi =
      ranks_of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"SLURM_PROCID", "9"}});
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.ranks, 8);
  EXPECT_EQ(ranks_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).ranks, 2);
  EXPECT_EQ(ranks_of({{"PMIX_RANK", "5"}}).rank, 5);
  EXPECT_EQ(ranks_of({{"PMIX_RANK", "5"}}).ranks, std::nullopt);
  EXPECT_EQ(ranks_of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}).rank, 1);
}

TEST(Ranks, OnlyNumbersCount) {
  for (const char* text : {"", "x", "3x", "-1", "99999999999999"})
    EXPECT_EQ(ranks_of({{"PMI_RANK", text}}).rank, std::nullopt) << text;
  EXPECT_EQ(ranks_of({{"OMPI_COMM_WORLD_RANK", "?"}, {"PMI_RANK", "2"}}).rank, 2);
}

TEST(HostName, IsThere) { EXPECT_FALSE(host_name().empty()); }

}  // namespace
}  // namespace cistern
