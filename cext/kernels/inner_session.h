// A session inside of a session: it runs a prepared file, in the place of the whole graph of another session.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ep_api.h"
#include "ort_calls.h"

namespace rlflow::kernels {

// What the outer graph says of an input or an output of the fused node.
struct Port {
  std::string name;
  int type = 0;                      // its elements'; 0: it is no tensor
  std::vector<std::string> extents;  // of each axis a number, or a name; empty text: nothing is known
};

class InnerSession {
 public:
  // `outer`: the options of the outer session; its threads and its configuration entries hold for this one, too.
  InnerSession(Api api, const ort::SessionOptions* outer);
  ~InnerSession();
  InnerSession(const InnerSession&) = delete;
  InnerSession& operator=(const InnerSession&) = delete;

  // Opens the prepared file. Throws RuntimeError where the runtime refuses it, and std::invalid_argument where it was
  // made for another model than `key` says.
  void open(const std::string& path, const std::string& key);
  bool is_open() const { return session_ != nullptr; }
  const std::vector<std::string>& inputs() const { return inputs_; }          // those that must be given
  const std::vector<std::string>& overridable() const { return overridable_; }  // those that have a value without
  const std::vector<std::string>& outputs() const { return outputs_; }

  // In which order the fused node has its inputs and outputs; once, before the first run.
  void connect(const std::vector<Port>& inputs, const std::vector<Port>& outputs);
  // `options`: of the outer run, so that what ends that ends this; may be null.
  void run(ort::KernelContext* context, const ort::RunOptions* options);

 private:
  using Shape = std::vector<int64_t>;
  using Values = std::vector<const ort::Value*>;

  Shape shape_of(const ort::Value* value) const;
  std::vector<Shape> known_shapes(const Shape& key);
  void copy(ort::KernelContext* context, std::size_t number, const ort::Value* from, Shape& shape) const;
  void call(const Values& given, const ort::RunOptions* options, std::vector<ort::Value*>& made) const;

  Api api_;
  ort::Environment* environment_ = nullptr;
  ort::SessionOptions* options_ = nullptr;
  ort::Session* session_ = nullptr;
  std::vector<std::string> inputs_, overridable_, outputs_;  // of the prepared file
  std::vector<std::string> given_names_, made_names_;        // in the fused node's order
  std::vector<const char*> given_, made_;                    // the same, for the runtime
  std::vector<bool> by_inputs_;                              // of each output: whether the inputs' shapes say its shape
  std::mutex mutex_;
  std::map<Shape, std::vector<Shape>> shapes_;  // of the outputs, by the shapes of the inputs; seen in a run
};

// The entry in the options of an inner session, so that it has no inner session in turn.
inline constexpr const char* kInnerEntry = "rlflow.kernels.inner";
// The entry in a prepared file's metadata: the hash of all that it depends on.
inline constexpr const char* kPreparedEntry = "rlflow.kernels.prepared";

}  // namespace rlflow::kernels
