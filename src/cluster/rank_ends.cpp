#include "cluster/rank_ends.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "base/plain/clock.h"
#include "base/plain/os_error.h"

namespace evenkeel::cluster {
namespace {

constexpr size_t kLongestText = 16384;  // of a note; a line that says how to resume holds paths

std::atomic<bool> leaving_because_of_another = false;

}  // namespace

/// A note is written by one thread of its rank, and read after the rank has ended.
struct RankNotes::Note {
  std::atomic<bool> is_taken, is_complete;
  int rank;
  double time;
  bool is_consequence, is_interrupted;
  ErrorKind kind;
  size_t size;
  std::array<char, kLongestText> text;
};

RankNotes::Note* RankNotes::own = nullptr;

RankNotes::RankNotes(int ranks) {
  const size_t bytes = static_cast<size_t>(ranks) * sizeof(Note);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EK_CHECK(memory != MAP_FAILED, kIo, "--ranks: no memory for what the ranks report: ", os_error_text(errno));
  notes_ = static_cast<Note*>(memory);
}

void RankNotes::belong_to(int rank) const {
  own = notes_ + rank;
  own->rank = rank;
}

std::optional<RankEnd> RankNotes::read(int rank) const {
  const Note& note = notes_[rank];
  if (!note.is_complete) return std::nullopt;
  return RankEnd{.rank = rank,
                 .time = note.time,
                 .is_consequence = note.is_consequence,
                 .is_interrupted = note.is_interrupted,
                 .kind = note.kind,
                 .text = std::string(note.text.data(), note.size)};
}

bool tell_starter(bool is_interrupted, ErrorKind kind, const std::string& text) noexcept {
  auto* note = RankNotes::own;
  if (!note) return false;
  if (note->is_taken.exchange(true)) return true;
  note->time = seconds_now();
  note->is_consequence = leaving_because_of_another || (is_interrupted && note->rank != 0);
  note->is_interrupted = is_interrupted;
  note->kind = kind;
  note->size = std::min(text.size(), note->text.size());
  std::copy_n(text.begin(), note->size, note->text.begin());
  note->is_complete = true;
  return true;
}

bool tell_starter(const Error& error) noexcept { return tell_starter(false, error.kind(), error.message()); }

bool tell_starter(const Interrupted& interrupted) noexcept { return tell_starter(true, kIo, interrupted.what()); }

void set_leaving_because_of_another(bool is_consequence) { leaving_because_of_another = is_consequence; }

const RankEnd& cause_of(std::span<const RankEnd> failures, bool survives_loss) {
  const auto comes_before = [&](const RankEnd& one, const RankEnd& other) {
    if (one.is_consequence != other.is_consequence) return !one.is_consequence;
    return one.is_consequence || !survives_loss ? one.time < other.time : one.time > other.time;
  };
  return *std::min_element(failures.begin(), failures.end(), comes_before);
}

void rethrow(const RankEnd& failure) {
  if (failure.is_interrupted) throw Interrupted(failure.text);
  const bool is_named = failure.rank == 0 || failure.text.starts_with("rank ");
  throw Error(failure.kind, is_named ? failure.text : concat("rank ", failure.rank, ": ", failure.text));
}

}  // namespace evenkeel::cluster
