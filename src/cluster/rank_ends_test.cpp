#include "cluster/rank_ends.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace evenkeel::cluster {
namespace {

RankEnd failure(int rank, double time, bool is_consequence = false) {
  return {.rank = rank, .time = time, .is_consequence = is_consequence, .text = concat("of ", rank)};
}

TEST(RankEnds, TheFirstFailureThatIsNoConsequenceIsTheCause) {
  const std::vector failures{failure(0, 1.0, true), failure(2, 3.0), failure(1, 2.0), failure(3, 0.5, true)};
  EXPECT_EQ(cause_of(failures, false).rank, 1);
}

TEST(RankEnds, OfConsequencesAloneTheFirstIsTheCause) {
  const std::vector failures{failure(2, 3.0, true), failure(1, 2.0, true), failure(0, 4.0, true)};
  EXPECT_EQ(cause_of(failures, false).rank, 1);
  EXPECT_EQ(cause_of(failures, true).rank, 1);
}

TEST(RankEnds, WhereARunSurvivesLossesTheLastFailureEndedIt) {
  const std::vector failures{failure(3, 1.0), failure(2, 9.0), failure(0, 9.5, true)};
  EXPECT_EQ(cause_of(failures, true).rank, 2);
}

TEST(RankEnds, AnErrorOfAnotherRankThanZeroIsRethrownWithItsRank) {
  const auto text_of = [](RankEnd end) -> std::string {
    try {
      rethrow(end);
    } catch (const Error& error) {
      return error.what();
    } catch (const Interrupted& interrupted) {
      return concat("interrupted: ", interrupted.what());
    }
  };
  EXPECT_EQ(text_of({.rank = 2, .kind = kData, .text = "row 3"}), "[data] rank 2: row 3");
  EXPECT_EQ(text_of({.rank = 2, .kind = kIo, .text = "rank 2, the sum: cut"}), "[io] rank 2, the sum: cut");
  EXPECT_EQ(text_of({.rank = 0, .kind = kConfig, .text = "seed is -1"}), "[config] seed is -1");
  EXPECT_EQ(text_of({.rank = 0, .is_interrupted = true, .text = "resume with: x"}), "interrupted: resume with: x");
}

TEST(RankEnds, AProcessThatNobodyStartedAsARankKeepsItsErrors) { EXPECT_FALSE(tell_starter(Error(kIo, "gone"))); }

/// Runs `work` in a forked process that has the note of `rank`.
template <typename Work>
void in_rank(const RankNotes& notes, int rank, const Work& work) {
  const pid_t process = ::fork();
  if (process == 0) {
    notes.belong_to(rank);
    work();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  ASSERT_EQ(status, 0);
}

TEST(RankEnds, TheFirstNoteOfARankReachesTheProcessThatStartedIt) {
  const RankNotes notes(3);
  in_rank(notes, 1, [] {
    if (!tell_starter(Error(kNumeric, "a loss of nan"))) ::_exit(1);
    tell_starter(Error(kIo, "a later one"));
  });
  in_rank(notes, 2, [] {
    set_leaving_because_of_another(true);
    tell_starter(Error(kIo, "rank 1 is gone"));
  });
  const auto one = notes.read(1), two = notes.read(2);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->text, "a loss of nan");
  EXPECT_EQ(one->kind, kNumeric);
  EXPECT_FALSE(one->is_consequence);
  EXPECT_TRUE(two->is_consequence);
  EXPECT_LT(one->time, two->time);
  EXPECT_FALSE(notes.read(0));
}

TEST(RankEnds, AnInterruptionIsTheCauseOnRankZeroOnly) {
  const RankNotes notes(2);
  for (const int rank : {0, 1}) in_rank(notes, rank, [] { tell_starter(Interrupted(std::string(20'000, 'x'))); });
  EXPECT_FALSE(notes.read(0)->is_consequence);
  EXPECT_TRUE(notes.read(1)->is_consequence);
  EXPECT_TRUE(notes.read(1)->is_interrupted);
  EXPECT_EQ(notes.read(1)->text.size(), 16384u);
}

}  // namespace
}  // namespace evenkeel::cluster
