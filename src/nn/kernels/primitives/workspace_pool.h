/// \file  Workspaces that outlive a call: what one call gives back the next one takes, whatever thread it runs in, so
/// that steps touch no fresh pages.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace evenkeel::kernels {

/// Frees everything that no call holds at the moment: call it when a run's model goes.
void release_kept();

/// A list of things of which any number can be held at once. As many are kept as ever were held at the same time.
class KeptList {
 public:
  virtual ~KeptList() = default;
  virtual void release() = 0;

 protected:
  KeptList();  // enters the list of all
};

template <typename W>
class Kept final : public KeptList {
 public:
  /// One that is free, or a new one; it goes back when the lease ends.
  class Lease {
   public:
    explicit Lease(Kept& from) : from_(from), held_(from.take()) {}
    ~Lease() { from_.give(std::move(held_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    W& operator*() const { return *held_; }
    W* operator->() const { return held_.get(); }

   private:
    Kept& from_;
    std::unique_ptr<W> held_;
  };

  void release() override {
    const std::scoped_lock lock(mutex_);
    free_.clear();
  }

 private:
  std::unique_ptr<W> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<W>();
    auto one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give(std::unique_ptr<W> one) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(one));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<W>> free_;
};

/// The list of all W of the program.
template <typename W>
Kept<W>& kept() {
  static Kept<W>& list = *new Kept<W>;  // never destroyed: threads may outlive main()
  return list;
}
template <typename W>
using Held = typename Kept<W>::Lease;

}  // namespace evenkeel::kernels
