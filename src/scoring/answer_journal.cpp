#include "scoring/answer_journal.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/format/record.h"
#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "base/plain/mapped_files.h"
#include "base/plain/sealed.h"

namespace evenkeel::scoring {

AnswerJournal::AnswerJournal(fs::path file) : file_(std::move(file)) {
  const auto read = read_sealed_lines(file_);
  if (read.damage) log::warning("[evaluate] ", read.damage->what(), "; answers from that line on are made again");
  for (const auto& line : read.lines) {
    auto batch = record::read<AnsweredBatch>(line.view());
    auto position = std::pair(batch.key, batch.first);
    batches_.insert_or_assign(std::move(position), std::move(batch));
  }
  shorten_file(file_, read.bytes());
}

const AnsweredBatch* AnswerJournal::find(const std::string& key, int64_t first) const {
  const auto found = batches_.find({key, first});
  return found == batches_.end() ? nullptr : &found->second;
}

const AnsweredBatch& AnswerJournal::add(AnsweredBatch batch) {
  append_sealed(file_, record::write(batch));
  auto position = std::pair(batch.key, batch.first);
  return batches_.insert_or_assign(std::move(position), std::move(batch)).first->second;
}

void AnswerJournal::finish() {
  batches_.clear();
  remove_path(file_);
}

void check_journal(const fs::path& file) {
  constexpr std::string_view kBegin = "{\"key\":\"";
  if (!path_exists(file)) return;
  EK_CHECK(is_file(file), kIo, file.string(), ": not a file");
  std::string begin(kBegin.size(), '\0');
  std::ifstream in(file, std::ios::binary);
  EK_CHECK(in.good(), kIo, file.string(), ": cannot be read");
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  EK_CHECK(kBegin.starts_with(begin), kData, file.string(),
           " is no journal of answers (evaluate --journal): choose another file");
}

AnsweredBatch get_or_compute(AnswerJournal* journal, const std::string& key, size_t first,
                             const std::function<AnsweredBatch()>& make) {
  if (const auto* known = journal ? journal->find(key, static_cast<int64_t>(first)) : nullptr) return *known;
  const auto start = std::chrono::steady_clock::now();
  auto batch = make();
  check_mapped_files();
  batch.key = key;
  batch.first = static_cast<int64_t>(first);
  batch.seconds = seconds_since(start);
  if (journal) journal->add(batch);
  return batch;
}

size_t hand_over(AnsweredBatch& batch, std::span<Prediction> rows) {
  EK_CHECK(!batch.answers.empty() && batch.answers.size() <= rows.size(), kCheckpoint, "the journal of answers has ",
           batch.answers.size(), " of \"", batch.key, "\" from row ", batch.first, " on, where ", rows.size(),
           " are left");
  std::move(batch.answers.begin(), batch.answers.end(), rows.begin());
  return batch.answers.size();
}

}  // namespace evenkeel::scoring
