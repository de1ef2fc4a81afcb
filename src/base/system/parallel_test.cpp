#include "base/system/parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace evenkeel {
namespace {

class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

template <typename Check>
void with_one_two_and_three_threads(const Check& check) {
  for (const int count : {1, 2, 3}) {
    SCOPED_TRACE(count);
    const Threads threads(count);
    check();
  }
}

/// Counts how often each index was visited, over all threads.
class Seen {
 public:
  explicit Seen(int64_t count) : times_(static_cast<size_t>(count)) {}

  void note(int64_t i) {
    const bool inside = 0 <= i && i < static_cast<int64_t>(times_.size());
    ++(inside ? times_[static_cast<size_t>(i)] : outside_);
  }
  void expect_each_once() const {
    EXPECT_EQ(outside_, 0);
    for (size_t i = 0; i < times_.size(); ++i) EXPECT_EQ(times_[i], 1) << "index " << i << " of " << times_.size();
  }

 private:
  std::vector<std::atomic<int>> times_;
  std::atomic<int> outside_{0};
};

void expect_pieces(int64_t count) {
  Seen seen(count);
  for_each_piece(count, [&](int64_t i) { seen.note(i); });
  seen.expect_each_once();
}

void expect_ranges(int64_t count, int64_t grain) {
  Seen seen(count);
  for_each_range(count, grain, [&](int64_t begin, int64_t end) {
    EXPECT_TRUE(0 <= begin && begin < end && end <= count) << begin << " to " << end << " of " << count;
    EXPECT_TRUE(end - begin == grain || (end - begin < grain && end == count))
        << begin << " to " << end << ", " << grain;
    for (int64_t i = begin; i < end; ++i) seen.note(i);
  });
  seen.expect_each_once();
}

/// The piece that begins first waits until all others are done, for at most ten seconds.
class HeldUp {
 public:
  explicit HeldUp(int64_t pieces) : others_(pieces - 1) {}

  void piece() {
    if (begun_++ == 0)
      wait();
    else
      ++done_;
  }
  bool was_overtaken() const { return overtaken_; }

 private:
  void wait() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (done_ < others_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    overtaken_ = done_ == others_;
  }

  const int64_t others_;
  std::atomic<int64_t> begun_{0}, done_{0};
  bool overtaken_ = false;
};

TEST(Parallel, EveryPieceIsVisitedOnce) {
  with_one_two_and_three_threads([] {
    for (const int64_t count : {1, 2, 3, 4, 7, 100}) expect_pieces(count);
  });
}

TEST(Parallel, RangesCoverEverythingAndAreAtMostTheGrain) {
  with_one_two_and_three_threads([] {
    for (const int64_t grain : {1, 4, 7})
      for (const int64_t grains : {1, 2, 3, 10})
        for (const int64_t more : {-1, 0, 1}) expect_ranges(grains * grain + more, grain);
    expect_ranges(2, 100);
  });
}

TEST(Parallel, ZeroPiecesCallNothing) {
  with_one_two_and_three_threads([] {
    for_each_piece(0, [](int64_t) { ADD_FAILURE(); });
    for_each_range(0, 5, [](int64_t, int64_t) { ADD_FAILURE(); });
  });
}

TEST(Parallel, ExceptionsReachTheCallerAndTheNextCallWorks) {
  with_one_two_and_three_threads([] {
    for (const int64_t bad : {0, 5, 39}) {
      const auto fail = [&](int64_t i) { return i == bad ? throw std::out_of_range("piece") : void(); };
      EXPECT_THROW(for_each_piece(40, fail), std::out_of_range) << bad;
      EXPECT_THROW(for_each_range(80, 2, [&](int64_t begin, int64_t) { fail(begin / 2); }), std::out_of_range) << bad;
    }
    expect_pieces(40);
  });
}

TEST(Parallel, ASlowThreadDoesNotDelayOtherPieces) {
#ifndef _OPENMP
  GTEST_SKIP() << "built without OpenMP: all work is one thread's";
#endif
  for (const int count : {2, 3}) {
    const Threads threads(count);
    HeldUp of_pieces(60), of_ranges(60);
    for_each_piece(60, [&](int64_t) { of_pieces.piece(); });
    EXPECT_TRUE(of_pieces.was_overtaken()) << count << " threads";
    for_each_range(60 * 4 - 1, 4, [&](int64_t, int64_t) { of_ranges.piece(); });
    EXPECT_TRUE(of_ranges.was_overtaken()) << count << " threads";
  }
}

}  // namespace
}  // namespace evenkeel
