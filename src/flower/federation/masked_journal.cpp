#include "flower/federation/masked_journal.h"

#include <ATen/ATen.h>

#include <array>

#include "base/format/safetensors.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/sealed.h"
#include "flower/federation/mask_messages.h"
#include "secure/round_json.h"

namespace evenkeel::flower {
namespace {

constexpr const char *kSumValues = "values", *kSumCounts = "counts";

OrderedJson page_of(const MaskedAttempt& attempt) {
  OrderedJson shares = OrderedJson::array();
  for (const auto& one : attempt.shares) shares.push_back(secure::to_json(one));
  OrderedJson page = {{"context", secure::to_json(attempt.context)},
                      {"identities", attempt.identities},
                      {"keys", to_json(attempt.keys)},
                      {"shares", std::move(shares)},
                      {"asked", attempt.asked},
                      {"files", to_json(attempt.files)}};
  if (attempt.survivors)
    page["set"] = secure::to_json(secure::SummedSet{secure::digest_of(attempt.context), *attempt.survivors});
  return page;
}

MaskedAttempt attempt_in(const JsonView& page) {
  MaskedAttempt attempt{.context = secure::read_as<secure::RoundContext>(page.at("context")),
                        .identities = page.at("identities").strings(),
                        .asked = page.at("asked").flag()};
  for (const auto& one : page.at("keys").items()) attempt.keys.push_back(secure::read_as<secure::KeysOfMember>(one));
  for (const auto& one : page.at("shares").items())
    attempt.shares.push_back(secure::read_as<secure::SharesOfMember>(one));
  if (const auto set = page.find("set")) attempt.survivors = secure::read_as<secure::SummedSet>(*set).survivors;
  from_json(page.at("files"), attempt.files);
  return attempt;
}

}  // namespace

void MaskedJournal::save(const MaskedAttempt& attempt) const {
  make_folders(folder_);
  write_sealed(page(), page_of(attempt));
}

std::optional<MaskedAttempt> MaskedJournal::load() const {
  if (!path_exists(page())) remove_path(sum_file());  // a process was killed within clear()
  if (!path_exists(page())) return {};
  const auto json = read_sealed(page());
  return attempt_in({json, page().string(), kCheckpoint});
}

void MaskedJournal::save_sum(MaskedAttempt& attempt, const secure::RingVector& sum) const {
  save_safetensors(sum_file(), {{kSumValues, sum.values}, {kSumCounts, sum.counts}});
  flush_files(std::array{sum_file()});
  attempt.files = {FileSeal::of(sum_file())};
  save(attempt);
}

secure::RingVector MaskedJournal::sum(const MaskedAttempt& attempt) const {
  for (const auto& seal : attempt.files) seal.check(folder_);
  const auto stored = load_safetensors(sum_file()).tensors;
  return {stored.at(kSumValues).clone(), stored.at(kSumCounts).clone()};
}

void MaskedJournal::clear() const {
  remove_path(page());
  remove_path(sum_file());
}

}  // namespace evenkeel::flower
