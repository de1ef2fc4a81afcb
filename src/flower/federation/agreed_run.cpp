#include "flower/federation/agreed_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kTrain = "train";
constexpr int64_t kLeastRepeats =
    8;  // requests with other content after the server went back, in a run of few requests

/// The first line of the file: everything that was known when an offer was agreed to.
struct AgreedPage {
  AgreedTerms terms;
  int64_t open = 0, repeats = 0;
  std::vector<AnsweredRequest> requests;
  void visit(auto& field) {
    field("terms", terms);
    field("open", open);
    field("repeats", repeats);
    field("requests", requests);
  }
};

/// A later line: a request that was admitted, which replaces an earlier one of the same point.
struct AdmittedLine {
  int64_t open = 0, repeats = 0;
  AnsweredRequest request;
  void visit(auto& field) {
    field("open", open);
    field("repeats", repeats);
    field("request", request);
  }
};

std::string digest_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const auto whole = tensor.contiguous();
  return sha256({static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()});
}

std::string digest_of(const lora::AdapterState& state) {
  std::string text;
  for (const auto& [site, f] : state)
    text += concat(site, ' ', digest_of(f.a), ' ', digest_of(f.b), ' ', digest_of(f.core), ' ', f.scaling, '\n');
  return sha256(text);
}

AnsweredRequest request_of(const fed::Task& task, const methods::Common& shared) {
  std::string what(kTrain);
  if (const auto* score = std::get_if<fed::Score>(&task.ask))
    what = concat("score ", score->task, " at budget ", task.client.budget, ", rank ", task.client.rank,
                  ", K = ", task.client.top_k, ", mode \"", score->rank_eval_mode, "\", ",
                  config::name_of(score->served_by));
  return {.what = std::move(what), .round = task.round, .digest = request_digest(task, shared)};
}

}  // namespace

std::string request_digest(const fed::Task& task, const methods::Common& shared) {
  auto bare = task;
  if (auto* train = std::get_if<fed::Train>(&bare.ask)) train->summed.reset();
  return sha256(concat(fed::header_of(bare), '\n', digest_of(task.payload.bytes), '\n', digest_of(shared.fixed), '\n',
                       digest_of(shared.base_change)));
}

AgreedRun::AgreedRun(fs::path folder, const std::string& run) {
  if (folder.empty()) return;
  make_folders(folder);
  file_ = folder / concat(run, "-agreed.json");
  if (!path_exists(file_)) return;
  load();
}

void AgreedRun::load() {
  const auto read = read_sealed_lines(file_);
  const std::span<const SealedLine> lines = read.whole().lines;
  EK_CHECK(!lines.empty(), kCheckpoint, file_.string(), " has no whole line");
  auto page = record::read<AgreedPage>(lines.front().view());
  terms_ = std::move(page.terms);
  open_ = page.open;
  repeats_ = page.repeats;
  requests_ = std::move(page.requests);
  for (const auto& line : lines.subspan(1)) {
    auto admitted = record::read<AdmittedLine>(line.view());
    open_ = admitted.open;
    repeats_ = admitted.repeats;
    put(std::move(admitted.request));
  }
  agreed_ = true;
}

void AgreedRun::save() const {
  if (!file_.empty()) write_sealed(file_, record::write(AgreedPage{terms_, open_, repeats_, requests_}));
}

void AgreedRun::put(AnsweredRequest request) {
  if (auto* known = find(request))
    *known = std::move(request);
  else
    requests_.push_back(std::move(request));
}

void AgreedRun::require_same(const AgreedTerms& terms, bool anew) const {
  if (!agreed_) return;
  auto changes = anew ? std::vector<std::string>() : changes_of(terms.keys, terms_.keys);
  if (terms.client != terms_.client) changes.push_back(concat("it is client ", terms.client, ", not ", terms_.client));
  EK_CHECK(changes.empty(), kConfig, "the run is not what this node agreed to before: ", join(changes, "; "),
           "; to agree to that, start this node with --agreed FILE, the config of the run as it is now");
}

void AgreedRun::agree(AgreedTerms terms, const Offer& offer, bool anew) {
  require_same(terms, anew);
  const bool same = terms.budget == terms_.budget && terms.examples == terms_.examples;
  EK_CHECK(requests_.empty() || same, kConfig, "the run has budget ", terms.budget, " and ", terms.examples,
           " examples for this node, agreed on: ", terms_.budget, " and ", terms_.examples);
  const bool joined = agreed_ && offer.budget > 0;
  if (joined && !anew) terms.files = terms_.files;
  terms_ = std::move(terms);
  agreed_ = true;
  open_ = offer.round;
  for (auto& request : requests_)
    if (request.what == kTrain ? request.round >= open_ : request.round > open_) request.undone = true;
  save();
}

AnsweredRequest* AgreedRun::find(const AnsweredRequest& asked) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const AnsweredRequest& known) {
    return known.what == asked.what && known.round == asked.round;
  });
  return found == requests_.end() ? nullptr : &*found;
}

bool AgreedRun::trained_after(int64_t round) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const AnsweredRequest& known) {
    return known.what == kTrain && !known.undone && known.round > round;
  });
}

void AgreedRun::check_repeat(const AnsweredRequest& known, const AnsweredRequest& asked) {
  if (known.digest == asked.digest) return;
  const auto most = std::max(kLeastRepeats, static_cast<int64_t>(requests_.size()));
  EK_CHECK(known.undone, kData, "asked again to ", asked.what, " after ", asked.round,
           " rounds, with other content than before");
  EK_CHECK(repeats_ < most, kData, "asked to repeat more than ", most, " requests with other content: ", asked.what,
           " after ", asked.round, " rounds");
  ++repeats_;
}

void AgreedRun::admit(const fed::Task& task, const methods::Common& shared) {
  const auto asked = request_of(task, shared);
  if (std::holds_alternative<fed::SumGradients>(task.ask)) {  // they depend on the base and the config alone
    EK_CHECK(!trained_after(-1), kData, "asked for gradients after the first round has begun");
    return;
  }
  const auto* known = find(asked);
  if (known && known->digest == asked.digest && !known->undone) return;
  EK_CHECK(asked.round >= open_ && !trained_after(asked.round), kData, "asked to ", asked.what, " after ", asked.round,
           " rounds, which is over");
  if (known) check_repeat(*known, asked);
  put(asked);
  if (asked.what == kTrain) open_ = std::max(open_, asked.round);
  if (!file_.empty()) append_sealed(file_, record::write(AdmittedLine{open_, repeats_, asked}));
}

void AgreedRun::require_files(const std::string& files) const {
  EK_CHECK(files == terms_.files, kData,
           "the files of this node's rows have changed since it joined this run: it gives no score of other rows");
}

}  // namespace evenkeel::flower
