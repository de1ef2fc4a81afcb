#include "base/system/local_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace evenkeel {
namespace {

/// Sets a variable of this process while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(LocalRanks, AreThoseOfTheLauncher) {
  EXPECT_EQ(local_rank(), 0);
  EXPECT_EQ(local_ranks(), 1);
  const Variable rank("MPI_LOCALRANKID", "2"), size("MPI_LOCALNRANKS", "5");
  EXPECT_EQ(local_rank(), 2);
  EXPECT_EQ(local_ranks(), 5);
  const Variable first_rank("LOCAL_RANK", "1"), first_size("LOCAL_WORLD_SIZE", "3");
  EXPECT_EQ(local_rank(), 1);
  EXPECT_EQ(local_ranks(), 3);
}

TEST(LocalRanks, AreOneWhereAVariableIsNoNumberOfRanks) {
  for (const char* text : {"", "two", "0", "-1", "1e9", "2000"}) {
    const Variable size("LOCAL_WORLD_SIZE", text);
    EXPECT_EQ(local_ranks(), 1) << text;
  }
}

TEST(LocalRanks, ShareAGpuThatHasANumber) {
  EXPECT_EQ(ranks_sharing("cuda:1", 4), 4);
  for (const char* device : {"cuda", "auto", "cpu"}) EXPECT_EQ(ranks_sharing(device, 4), 1) << device;
}

}  // namespace
}  // namespace evenkeel
