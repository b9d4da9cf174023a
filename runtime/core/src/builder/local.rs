//! Builds a [`LocalRuntime`], whose tasks stay on the thread that builds it.

use super::Builder;
use super::error::BuildError;
use crate::config::identity::ThreadNumber;
use crate::runtime::{LocalOptions, LocalRuntime};

impl Builder {
    /// Checks the settings and starts a [`LocalRuntime`], which also runs futures that are not
    /// `Send`. Only the calling thread can drive it.
    ///
    /// # Errors
    /// Same as [`build`](Self::build).
    ///
    /// # Panics
    /// Panics if the builder is not that of a
    /// [current-thread runtime](Self::new_current_thread).
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::runtime::LocalOptions;
    ///
    /// let runtime = volt::Builder::new_current_thread().build_local(LocalOptions::default())?;
    /// let text = std::rc::Rc::new("here");
    /// let task = runtime.spawn_local(async move { text.len() });
    /// assert_eq!(runtime.block_on(task).unwrap(), 4);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn build_local(mut self, _options: LocalOptions) -> Result<LocalRuntime, BuildError> {
        assert!(
            self.config.is_current_thread,
            "multi_thread is not supported for LocalRuntime: use Builder::new_current_thread()"
        );
        self.config.local_to = Some(ThreadNumber::here());
        Ok(LocalRuntime::of(self.build()?))
    }
}

impl LocalRuntime {
    /// Starts a runtime on this thread, with the default settings.
    ///
    /// # Errors
    /// Same as [`Builder::build`](crate::builder::Builder::build).
    pub fn new() -> Result<LocalRuntime, BuildError> {
        Builder::new_current_thread().build_local(LocalOptions::default())
    }
}
