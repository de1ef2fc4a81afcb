/// \file  Remembers what a node agreed to in a run and what it was asked for, so that neither can change unnoticed. The
/// file is in the node's folder and survives a restart of the node.
///
///   <run>-agreed.json   sealed lines (base/plain/sealed.h): terms and all requests at the last offer, then one line
///                       per request since
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fed/exchange/message.h"
#include "flower/federation/agreed_terms.h"

namespace evenkeel::flower {

/// A request that the node has begun to answer.
struct AnsweredRequest {
  std::string what;    ///< "train", or task, budget, rank evaluation mode and program of a score
  int64_t round = 0;   ///< rounds done before the request
  std::string digest;  ///< SHA-256 over header, payload and shared state
  /// True: the server has gone back to an earlier round, so the request may come again with other content.
  bool undone = false;

  void visit(auto& field) {  // base/format/record.h
    field("what", what);
    field("round", round);
    field("digest", digest);
    field("undone", undone);
  }
};

/// Returns the SHA-256 over header and payload of a task and over the shared state. The terms of a sum
/// (fed::Train::summed) are left out: a round may be masked again (secure/node_round.h has the rules).
std::string request_digest(const fed::Task& task, const methods::Common& shared);

/// The terms and the requests of one run. Threads: one.
class AgreedRun {
 public:
  /// Reads what is known of `run`. \param folder  made if absent; empty: nothing is stored
  /// \throws kCheckpoint when the file is damaged
  AgreedRun(std::filesystem::path folder, const std::string& run);

  /// Checks that client and keys of an offer equal those that the node agreed to. Passes if it has agreed to none yet.
  /// \param anew  true: the owner has agreed to this offer (--agreed), so its keys may differ
  /// \throws kConfig naming what has changed
  void require_same(const AgreedTerms& terms, bool anew) const;
  /// Agrees to the terms of `offer` and stores them. Requests after Offer::round are undone. Once the server knows of
  /// the first acceptance, its digest of files stays, unless `anew`. \throws kConfig as require_same(), and for another
  /// budget or number of examples after the first request
  void agree(AgreedTerms terms, const Offer& offer, bool anew);
  /// Returns the digest of the files of rows with which the node joined.
  const std::string& files() const { return terms_.files; }

  /// Admits a request on a shared state. The same request may come any number of times. A round is trained, and a state
  /// scored at a point, with one content only, unless the server has gone back to an earlier round.
  /// \throws kData when it is not admitted
  void admit(const fed::Task& task, const methods::Common& shared);

  /// Checks that the files of rows are those with which the node joined. \throws kData
  void require_files(const std::string& files) const;

 private:
  AnsweredRequest* find(const AnsweredRequest& asked);
  void check_repeat(const AnsweredRequest& known, const AnsweredRequest& asked);
  void put(AnsweredRequest request);
  bool trained_after(int64_t round) const;
  void load();
  void save() const;

  std::filesystem::path file_;
  AgreedTerms terms_;
  bool agreed_ = false;
  int64_t open_ = 0;  // rounds before this one are over: nothing new is asked about them
  int64_t repeats_ = 0;
  std::vector<AnsweredRequest> requests_;
};

}  // namespace evenkeel::flower
