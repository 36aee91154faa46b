#include <cstddef>
#include <utility>
#include <vector>

#include "python/module/module.h"

namespace rondo::python {
namespace {

// An operation under way: the base of rondo.Work. The interpreter lock guards its fields, but for the operation itself.
struct Work {
  PyObject base;
  rondo_work_t handle;              // NULL: it was never begun; freed with the object, or by sweep()
  PyObject *kept, *result, *error;  // what must live until it is over; what wait() returns; its failure, or NULL
  PyObject* group;                  // NULL when it is over
  bool receives, ended;
};
Work& self_of(PyObject* object) { return *reinterpret_cast<Work*>(object); }

// Operations under way whose Work is gone, and what they need.
struct Dropped {
  rondo_work_t handle;
  PyObject* kept;
};
// The interpreter lock guards it. The program may let a Work go at once: its arrays stay until the operation is over.
std::vector<Dropped> dropped;

// Frees operations that have ended meanwhile. Other threads run during a test, and may come here: the operation that is
// tested is in no list then. Called before each new Work.
PyObject* sweep(PyObject*, PyObject*) {
  for (const Dropped& each : std::exchange(dropped, {})) {
    int done = 0;
    if (without_gil([&] { return rondo_test(each.handle, &done); }) == RONDO_OK && done == 0) {
      dropped.push_back(each);
    } else {
      rondo_work_free(each.handle);
      Py_XDECREF(each.kept);
    }
  }
  Py_RETURN_NONE;
}

// result: what a function said when the operation was over. Raises what a signal's handler raised in this wait: then
// the operation may be under way.
void end(Work& self, rondo_result_t result) {
  Ref error, message;
  if (result != RONDO_OK) {
    error = last_error(result);
  } else if (self.receives) {
    rondo_message_t received{};
    check(rondo_work_message(self.handle, &received));
    message = message_of(received);
  }
  if (std::exchange(self.ended, true)) return;  // another thread was here meanwhile
  self.error = error.release();
  if (message) Py_XDECREF(std::exchange(self.result, message.release()));
  for (PyObject** each : {&self.kept, &self.group}) Py_XDECREF(std::exchange(*each, nullptr));
}

// Returns whether it is over, and raises what a handler of a signal raised. The operation's own failure goes to
// `error`, for Python's side. -1 ms: no limit.
PyObject* wait(PyObject* object, PyObject* milliseconds) {
  return guarded([&] {
    Work& self = self_of(object);
    if (!self.ended) {
      const int64_t timeout_ms = PyLong_AsLongLong(milliseconds);
      int done = 1;
      if (timeout_ms == 0) check(without_gil([&] { return rondo_test(self.handle, &done); }));  // also in callbacks
      if (done == 0) return Py_NewRef(Py_False);
      rondo_result_t result = without_gil([&] { return rondo_wait(self.handle, timeout_ms); });
      if (result == RONDO_IN_PROGRESS) return Py_NewRef(Py_False);
      if (result == RONDO_INVALID) {  // the operation's failure, or a refusal: in a callback, a batch, a forked child
        const Ref refusal = last_error(result);
        done = 0;
        const rondo_result_t tested = without_gil([&] { return rondo_test(self.handle, &done); });
        if (tested != RONDO_OK || done == 0) raise(refusal.get());  // it is under way, and needs its arrays
        result = without_gil([&] { return rondo_wait(self.handle, 0); });
      }
      end(self, result);
    }
    return Py_NewRef(Py_True);
  });
}

PyObject* cancel(PyObject* object, PyObject*) {
  return guarded([&] {
    Work& self = self_of(object);
    int cancelled = 0;
    if (!self.ended) check(without_gil([&] { return rondo_work_cancel(self.handle, &cancelled); }));
    return PyBool_FromLong(cancelled);
  });
}

PyObject* wait_on(PyObject* object, PyObject* stream) {
  return guarded([&] {
    void* const on = PyLong_AsVoidPtr(stream);
    check(without_gil([&] { return rondo_work_wait_on(self_of(object).handle, on); }));
    return Py_NewRef(Py_None);
  });
}

// On a thread of the library. What the function raises goes to sys.unraisablehook.
void call_back(void* context, rondo_result_t result) {
  const PyGILState_STATE state = until_the_end(PyGILState_Ensure);
  {
    const Ref pair(static_cast<PyObject*>(context));
    PyObject *const work = PyTuple_GetItem(pair.get(), 0), *const function = PyTuple_GetItem(pair.get(), 1);
    const Ref returned(guarded([&] {
      if (!self_of(work).ended) end(self_of(work), result);
      return PyObject_CallFunctionObjArgs(function, work, nullptr);
    }));
    if (!returned) PyErr_WriteUnraisable(function);
  }
  PyGILState_Release(state);
}

// The pair keeps the Work until the function has been called.
PyObject* on_end(PyObject* object, PyObject* function) {
  return guarded([&] {
    Ref pair = Ref::checked(PyTuple_Pack(2, object, function));
    check(without_gil([&] { return rondo_work_on_end(self_of(object).handle, call_back, pair.get()); }));
    pair.release();  // to call_back()
    return Py_NewRef(Py_None);
  });
}

// An operation under way keeps its arrays: sweep() frees them later.
void free_work(PyObject* object) {
  Work& self = self_of(object);
  PyTypeObject* const type = Py_TYPE(object);
  if (self.handle != nullptr && !self.ended) {
    dropped.push_back({self.handle, std::exchange(self.kept, nullptr)});
  } else if (self.handle != nullptr) {
    rondo_work_free(self.handle);
  }
  for (PyObject* each : {self.kept, self.result, self.error, self.group}) Py_XDECREF(each);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

// rondo.work.Work calls them.
PyMethodDef methods[] = {{"_wait", wait, METH_O, nullptr},
                         {"_cancel", cancel, METH_NOARGS, nullptr},
                         {"_wait_on", wait_on, METH_O, nullptr},
                         {"_on_end", on_end, METH_O, nullptr},
                         {"_sweep", sweep, METH_NOARGS | METH_STATIC, nullptr},
                         {}};
PyMemberDef members[] = {{"_result", T_OBJECT, offsetof(Work, result), READONLY, nullptr},
                         {"_error", T_OBJECT, offsetof(Work, error), READONLY, nullptr},
                         {}};
PyType_Slot slots[] = {{Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_dealloc, reinterpret_cast<void*>(free_work)},
                       {0, nullptr}};
PyType_Spec spec = {"_rondo.Work", sizeof(Work), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

// Its class is Python's rondo.work.Work, whose base is the one here.
Ref new_work(PyObject* group, Ref kept, PyObject* result, bool receives) {
  sweep(nullptr, nullptr);
  static PyObject* type = nullptr;
  Ref made = Ref::checked(PyObject_CallNoArgs(imported(type, "rondo.work", "Work")));
  Work& self = self_of(made.get());
  self.kept = kept.release();
  self.group = Py_NewRef(group);
  self.result = Py_NewRef(result);
  self.receives = receives;
  return made;
}

rondo_work_t* handle_in(const Ref& work) { return &self_of(work.get()).handle; }

Ref message_of(const rondo_message_t& message) {
  static PyObject *message_type = nullptr, *matched_type = nullptr;
  const bool matched = message.matched != 0;
  PyObject* const type =
      matched ? imported(matched_type, "rondo.work", "Matched") : imported(message_type, "rondo.work", "Message");
  // A named tuple's own __new__ is a function of Python.
  Ref made = Ref::checked(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), matched ? 4 : 3));
  PyTuple_SetItem(made.get(), 0, PyLong_FromLong(message.peer));
  PyTuple_SetItem(made.get(), 1, PyLong_FromLong(message.tag));
  PyTuple_SetItem(made.get(), 2, PyLong_FromUnsignedLongLong(message.bytes));
  if (matched) PyTuple_SetItem(made.get(), 3, PyLong_FromUnsignedLongLong(message.matched));
  return made;
}

void add_work(PyObject* module) {
  const Ref type = Ref::checked(PyType_FromSpec(&spec));
  if (PyModule_AddObjectRef(module, "Work", type.get()) != 0) throw Raised();
}

}  // namespace rondo::python
